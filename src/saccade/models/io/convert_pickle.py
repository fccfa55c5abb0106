"""Pickled weights to safetensors, in a process of its own: tensors only, with limits on memory, time and file size.

The child reads with `weights_only=True`, which admits tensors and plain containers and nothing that runs; there is no way
around it here. It has no network where the system lets a process give that up.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from saccade.errors import ModelError
from saccade.models.io.model_dir import MODULE_DIR_REGEX, check_regular_file, find_pickles
from saccade.text.loading.safe_files import abbreviate

MAX_CONVERT_SECONDS = 600
TORCH_MEMORY_BYTES = 4 << 30  # what torch itself maps; the weights come on top of it
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000  # of unshare(2)


@contextmanager
def convert_pickles(directory: Path) -> Iterator[Path]:
    """A copy of the directory, for the time of the block, with safetensors in place of its pickles.

    An error from within the block names the directory itself and not the copy, which is gone when the error is read.
    """
    if not directory.is_dir():
        raise ModelError(f"{directory}: a directory with config.json and pickled weights is needed.")
    parts = [directory, *(path for path in sorted(directory.iterdir()) if path.is_dir() and _is_module_dir(path))]
    found = {part: _find_pickles(part, directory) for part in parts}
    if not any(found.values()):
        raise ModelError(f"{directory}: has no pickled weights; import it without --convert-pickle.")
    with tempfile.TemporaryDirectory(prefix="saccade-convert-") as home:
        clean = Path(home) / "model"
        try:
            for part in parts:
                _copy_module(part, found[part], clean / part.relative_to(directory), directory)
            yield clean
        except ValueError as error:
            raise ModelError(str(error).replace(str(clean), str(directory))) from error


def _is_module_dir(path: Path) -> bool:
    """Whether this is the directory of a module of sentence-transformers, such as 1_Pooling or 2_Dense."""
    return re.fullmatch(MODULE_DIR_REGEX, path.name) is not None


def _find_pickles(part: Path, directory: Path) -> list[Path]:
    """The pickled weights of a directory or of a part of it, each checked before it is read."""
    found = [check_regular_file(path, directory) for path in find_pickles(part)]
    found = [path for path in found if path.name.startswith("pytorch_model")] or found  # not what training left beside
    plain = [path for path in found if re.fullmatch(r"pytorch_model(-\d+-of-\d+)?\.bin", path.name)]
    found = plain or found  # beside them, pytorch_model.fp16.bin has the same tensors again
    for path in found:
        _check_archive(path)
    return found


def _copy_module(part: Path, weights: list[Path], clean: Path, directory: Path) -> None:
    """Plain files as they are and pickled weights as safetensors."""
    clean.mkdir()
    kept = (".json", ".txt", ".model", ".spm", ".jinja") if weights else (".json", ".safetensors")
    for path in part.iterdir():
        if path.is_file() and path.suffix in kept:
            shutil.copy(check_regular_file(path, directory), clean / path.name)
    if weights:
        _convert_in_child(weights, clean / "model.safetensors")


def _check_archive(path: Path) -> None:
    """An archive whose parts are larger than itself is a bomb: torch stores weights as they are, without packing them."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(part.file_size for part in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise ModelError(f"{path}: the pickle is refused: a broken archive ({error}).") from error
    if size > path.stat().st_size:
        raise ModelError(
            f"{path}: the pickle is refused: its parts have {size:,} bytes and the file {path.stat().st_size:,}; "
            "torch writes weights unpacked."
        )


def _convert_in_child(sources: list[Path], target: Path) -> None:
    """Run the child, and turn its last words into an error."""
    # -P: the directory one stands in is no place to import from, and it may be the one that is being imported
    command = [sys.executable, "-P", "-m", "saccade.models.io.convert_pickle", str(target), *map(str, sources)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=MAX_CONVERT_SECONDS, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as error:
        raise ModelError(
            f"{sources[0]}: reading the pickle took more than {MAX_CONVERT_SECONDS} seconds and was stopped."
        ) from error
    if done.returncode or not target.exists():
        lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        last = lines[-1].strip() if lines else f"the process ended with {done.returncode} and without a word"
        raise ModelError(f"{sources[0]}: the pickle is refused: {abbreviate(last, 400)}")


def _limit_resources(size: int) -> None:
    """Little to do harm with: no more memory, time or file than the weights need, and no network where that can be had."""
    with suppress(ImportError, OSError, ValueError):  # Windows has none of it
        import resource

        for kind, most in (
            (resource.RLIMIT_AS, TORCH_MEMORY_BYTES + 4 * size),
            (resource.RLIMIT_FSIZE, 2 * size + (1 << 20)),
            (resource.RLIMIT_CPU, MAX_CONVERT_SECONDS),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(kind, (most, most))
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        system = ctypes.CDLL(None)
        if system.unshare(CLONE_NEWNET):  # for root; anybody else needs a user namespace, where the system has them
            system.unshare(CLONE_NEWUSER | CLONE_NEWNET)


def _run_child(target: str, sources: list[str]) -> None:
    import torch
    from safetensors.torch import save_file

    size = sum(os.stat(source).st_size for source in sources)
    tensors: dict[str, torch.Tensor] = {}
    for source in sources:
        read = torch.load(source, map_location="cpu", weights_only=True)
        read = read.get("state_dict", read) if isinstance(read, dict) else read
        if not isinstance(read, dict):
            raise ModelError(f"{source}: a dictionary of tensors is needed; found {type(read).__name__}.")
        for name, x in read.items():
            if isinstance(x, torch.Tensor):
                tensors[_check_name(name)] = _copy_checked_tensor(_check_name(name), x, size)
    if not tensors:
        raise ModelError(f"{sources[0]}: there is no tensor in it.")
    save_file(tensors, target, {"format": "pt"})


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not name.isprintable() or len(name) > 500:
        raise ModelError(f"{abbreviate(name)} is no name of a tensor.")
    return name


def _copy_checked_tensor(name: str, x: Any, size: int) -> Any:
    """A tensor of its own, if it is an ordinary one and not larger than the file it came from."""
    import torch

    ordinary = type(x) in (torch.Tensor, torch.nn.Parameter) and x.layout == torch.strided and x.device.type == "cpu"
    if not ordinary or x.is_quantized:
        raise ModelError(f"{name} is no plain tensor but {type(x).__name__}, {x.layout}, on {x.device}.")
    if x.numel() * x.element_size() > size:
        raise ModelError(f"{name} would take {x.numel() * x.element_size():,} bytes, and the file has {size:,}.")
    return x.detach().clone(memory_format=torch.contiguous_format)


def _describe_refusal(error: Exception) -> str:
    """Why a pickle is refused, in one line; torch's advice to read it without a guard is left out.

    >>> said = "Weights only load failed. Do as you like. Unsupported global: GLOBAL os.system was not allowed."
    >>> _describe_refusal(ValueError(said))
    'Unsupported global: GLOBAL os.system'
    """
    said = " ".join(str(error).split())
    if isinstance(error, EOFError | IndexError | MemoryError):
        said = {EOFError: "it ends early", IndexError: "its stack is empty"}.get(
            type(error), "it needs too much memory"
        )
    found = re.search(r"Unsupported (?:operand|global: GLOBAL) \S+|load unsupported GLOBAL \S+", said)
    said = found[0] if found else said.partition("WeightsUnpickler error:")[2].strip() or said
    return re.split(r" Check the doc| If you are seeing", said)[0].strip()[:400]


if __name__ == "__main__":
    _limit_resources(sum(os.stat(source).st_size for source in sys.argv[2:]))
    try:
        _run_child(sys.argv[1], sys.argv[2:])
    except Exception as error:  # the last line is what the user reads
        raise SystemExit(_describe_refusal(error)) from None
