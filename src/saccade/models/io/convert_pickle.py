"""Converts pickled weights to safetensors in a child process with limits on memory, time and file size.

The child loads with `weights_only=True`, which accepts tensors and plain containers but no code; this cannot be switched off. It
has no network access if the operating system lets a process drop it.
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
TORCH_MEMORY_BYTES = 4 << 30  # that torch itself maps, in addition to the weights
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000  # of unshare(2)


@contextmanager
def convert_pickles(directory: Path) -> Iterator[Path]:
    """Context manager: a temporary copy of the directory with its pickles converted to safetensors.

    Error messages from within the block name the original directory, since the copy is deleted afterwards.
    """
    if not directory.is_dir():
        raise ModelError(f"{directory}: a directory with config.json and pickled weights is needed.")
    modules = [directory, *(path for path in sorted(directory.iterdir()) if path.is_dir() and _is_module_dir(path))]
    pickles = {module: _find_pickles(module, directory) for module in modules}
    if not any(pickles.values()):
        raise ModelError(f"{directory}: no pickled weights found; import it without --convert-pickle.")
    with tempfile.TemporaryDirectory(prefix="saccade-convert-") as temporary:
        copy = Path(temporary) / "model"
        try:
            for module in modules:
                _copy_module(module, pickles[module], copy / module.relative_to(directory), directory)
            yield copy
        except ValueError as error:
            raise ModelError(str(error).replace(str(copy), str(directory))) from error


def _is_module_dir(path: Path) -> bool:
    """Whether this is a sentence-transformers module directory, such as 1_Pooling or 2_Dense."""
    return re.fullmatch(MODULE_DIR_REGEX, path.name) is not None


def _find_pickles(module: Path, directory: Path) -> list[Path]:
    """The pickled weights of a directory or module directory, checked before any is read."""
    pickles = [check_regular_file(path, directory) for path in find_pickles(module)]
    # without optimizer and training state
    pickles = [path for path in pickles if path.name.startswith("pytorch_model")] or pickles
    weights = [path for path in pickles if re.fullmatch(r"pytorch_model(-\d+-of-\d+)?\.bin", path.name)]
    pickles = weights or pickles  # without variants such as pytorch_model.fp16.bin, which repeat the tensors
    for path in pickles:
        _check_archive(path)
    return pickles


def _copy_module(module: Path, weights: list[Path], clean: Path, directory: Path) -> None:
    """Copy plain files, and convert pickled weights to safetensors."""
    clean.mkdir()
    suffixes = (".json", ".txt", ".model", ".spm", ".jinja") if weights else (".json", ".safetensors")
    for path in module.iterdir():
        if path.is_file() and path.suffix in suffixes:
            shutil.copy(check_regular_file(path, directory), clean / path.name)
    if weights:
        _convert_in_child(weights, clean / "model.safetensors")


def _check_archive(path: Path) -> None:
    """Raise ModelError for a zip bomb: torch does not compress weights, so the members cannot be larger than the archive."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise ModelError(f"{path}: the pickle was rejected: damaged zip archive ({error}).") from error
    if size > path.stat().st_size:
        raise ModelError(
            f"{path}: the pickle was rejected: its members have {size:,} bytes, the file {path.stat().st_size:,}; "
            "torch never compresses weights."
        )


def _convert_in_child(sources: list[Path], target: Path) -> None:
    """Run the child process; raises ModelError with the last line of its stderr if it fails."""
    # -P keeps the working directory, which may be the untrusted one, off sys.path
    command = [sys.executable, "-P", "-m", "saccade.models.io.convert_pickle", str(target), *map(str, sources)]
    try:
        process = subprocess.run(command, capture_output=True, timeout=MAX_CONVERT_SECONDS, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as error:
        raise ModelError(
            f"{sources[0]}: reading the pickle took more than {MAX_CONVERT_SECONDS} seconds and was aborted."
        ) from error
    if process.returncode or not target.exists():
        lines = [line for line in process.stderr.decode(errors="replace").splitlines() if line.strip()]
        reason = lines[-1].strip() if lines else f"the process ended with exit code {process.returncode} and no message"
        raise ModelError(f"{sources[0]}: the pickle was rejected: {abbreviate(reason, 400)}")


def _limit_resources(size: int) -> None:
    """Limit memory, CPU time and file size to what the weights need, and drop network access if possible."""
    with suppress(ImportError, OSError, ValueError):  # not available on Windows
        import resource

        for kind, limit in (
            (resource.RLIMIT_AS, TORCH_MEMORY_BYTES + 4 * size),
            (resource.RLIMIT_FSIZE, 2 * size + (1 << 20)),
            (resource.RLIMIT_CPU, MAX_CONVERT_SECONDS),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(kind, (limit, limit))
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        libc = ctypes.CDLL(None)
        if libc.unshare(CLONE_NEWNET):  # root only; other users need a user namespace
            libc.unshare(CLONE_NEWUSER | CLONE_NEWNET)


def _run_child(target: str, sources: list[str]) -> None:
    import torch
    from safetensors.torch import save_file

    size = sum(os.stat(source).st_size for source in sources)
    tensors: dict[str, torch.Tensor] = {}
    for source in sources:
        loaded = torch.load(source, map_location="cpu", weights_only=True)
        loaded = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else loaded
        if not isinstance(loaded, dict):
            raise ModelError(f"{source}: a dictionary of tensors is needed; found {type(loaded).__name__}.")
        for name, x in loaded.items():
            if isinstance(x, torch.Tensor):
                tensors[_check_name(name)] = _copy_checked_tensor(_check_name(name), x, size)
    if not tensors:
        raise ModelError(f"{sources[0]}: no tensors found.")
    save_file(tensors, target, {"format": "pt"})


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not name.isprintable() or len(name) > 500:
        raise ModelError(f"{abbreviate(name)} is not a valid tensor name.")
    return name


def _copy_checked_tensor(name: str, x: Any, size: int) -> Any:
    """A copy of a tensor; raises ModelError unless it is a plain dense tensor no larger than the file."""
    import torch

    is_plain = type(x) in (torch.Tensor, torch.nn.Parameter) and x.layout == torch.strided and x.device.type == "cpu"
    if not is_plain or x.is_quantized:
        raise ModelError(f"{name} is not a plain dense tensor: {type(x).__name__}, {x.layout}, on {x.device}.")
    if x.numel() * x.element_size() > size:
        raise ModelError(f"{name} needs {x.numel() * x.element_size():,} bytes, but the file has {size:,}.")
    return x.detach().clone(memory_format=torch.contiguous_format)


def _describe_refusal(error: Exception) -> str:
    """Why a pickle was rejected, in one line, without torch's advice to load it with `weights_only=False`.

    >>> message = "Weights only load failed. Do as you like. Unsupported global: GLOBAL os.system was not allowed."
    >>> _describe_refusal(ValueError(message))
    'Unsupported global: GLOBAL os.system'
    """
    message = " ".join(str(error).split())
    if isinstance(error, EOFError | IndexError | MemoryError):
        reasons = {EOFError: "it ends early", IndexError: "its stack is empty"}
        message = reasons.get(type(error), "it needs too much memory")
    match = re.search(r"Unsupported (?:operand|global: GLOBAL) \S+|load unsupported GLOBAL \S+", message)
    message = match[0] if match else message.partition("WeightsUnpickler error:")[2].strip() or message
    return re.split(r" Check the doc| If you are seeing", message)[0].strip()[:400]


if __name__ == "__main__":
    _limit_resources(sum(os.stat(source).st_size for source in sys.argv[2:]))
    try:
        _run_child(sys.argv[1], sys.argv[2:])
    except Exception as error:  # the last line is what the user reads
        raise SystemExit(_describe_refusal(error)) from None
