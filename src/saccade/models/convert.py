"""Pickled weights to safetensors, in a process of its own: tensors only, with limits on memory, time and file size.

The child reads with `weights_only=True`, which admits tensors and plain containers and nothing that runs; there is no way
around it here. It has no network where the system lets a process give that up.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from saccade.models.files import pickled, regular

SECONDS, MEMORY = 600, 32 * 2**30


@contextmanager
def converted(directory: Path) -> Iterator[Path]:
    """A copy of the directory, for the time of the block, with safetensors in place of its pickles."""
    if not directory.is_dir():
        raise ValueError(f"{directory}: a directory with config.json and pickled weights is needed.")
    found = [
        p for p in sorted(directory.iterdir()) if p.is_file() and p.suffix in (".bin", ".pt", ".pth") and pickled(p)
    ]
    if not found:
        raise ValueError(f"{directory}: has no pickled weights; import it without --convert.")
    with tempfile.TemporaryDirectory(prefix="saccade-convert-") as home:
        clean = Path(home) / "model"
        clean.mkdir()
        for path in directory.iterdir():
            if path.is_file() and path.suffix in (".json", ".txt", ".model", ".spm"):
                shutil.copy(regular(path, directory), clean / path.name)
        command = [sys.executable, "-m", "saccade.models.convert", str(clean / "model.safetensors")]
        command += [str(regular(path, directory)) for path in found]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as error:
            raise ValueError(
                f"{directory}: reading the pickle took more than {SECONDS} seconds and was stopped."
            ) from error
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise ValueError(f"{directory}: the pickle is refused: {last[:300]}")
        yield clean


def _limit() -> None:
    """Little to do harm with: no more memory, time or file than a model needs, and no network where that can be had."""
    with suppress(ImportError, OSError, ValueError):  # Windows has none of it
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MEMORY, MEMORY))
    with suppress(AttributeError, OSError):
        import os

        os.unshare(os.CLONE_NEWNET)  # type: ignore[attr-defined] - Python 3.12 on Linux, as root


def _child(target: str, sources: list[str]) -> None:
    _limit()
    import torch
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}
    for source in sources:
        read = torch.load(source, map_location="cpu", weights_only=True)
        if not isinstance(read, dict):
            raise ValueError(f"{source}: a dictionary of tensors is needed; found {type(read).__name__}.")
        read = read.get("state_dict", read)
        tensors |= {str(name): x.clone() for name, x in read.items() if isinstance(x, torch.Tensor)}
    save_file({name: x.contiguous() for name, x in tensors.items()}, target, {"format": "pt"})


if __name__ == "__main__":
    _child(sys.argv[1], sys.argv[2:])
