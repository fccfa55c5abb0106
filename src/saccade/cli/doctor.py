"""`saccade doctor`: what this machine has, whether saccade works on it, and how fast."""

import json as encoder
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import tyro

from saccade.cli.health import Line, checks
from saccade.cores import cores

MARKS = {"ok": "ok", "warning": "warning", "missing": "MISSING"}
GIGA = 1e9
PLAIN = ("DEFAULT", "NO AVX")  # what torch calls a processor without vector instructions that it knows


def main(*, json: tyro.conf.FlagCreatePairsOff[bool] = False) -> int:
    """Look at this machine and try out what saccade needs: versions, cores, memory, devices, then small computations with a
    known result, and speeds. It takes some seconds, writes nothing but to a temporary directory, and uses no network.

    Exit code: 0 saccade works here, 5 something that it needs is missing or wrong; a warning alone is 0.

    Args:
        json: Print JSON.
    """
    lines: list[Line] = []
    for line in everything():
        lines.append(line)
        if not json:
            print(told(line), flush=True)
    bad = [line for line in lines if line.state == "missing"]
    if json:
        print(encoder.dumps({"ok": not bad, "lines": [vars(line) for line in lines]}))
    else:
        warned = sum(line.state == "warning" for line in lines)
        print(f"\n{'Something is missing.' if bad else 'saccade works here.'}  {warned} warnings, {len(bad)} missing")
    return 5 if bad else 0


def told(line: Line) -> str:
    """One line, and below it what to do."""
    first = f"{MARKS[line.state]:8} {line.name:15} {line.found}"
    return f"{first}\n{'':24} -> {line.todo}" if line.todo else first


def everything() -> Iterator[Line]:
    """Versions first: without torch the rest cannot be looked at."""
    yield from versions()
    try:
        import torch  # noqa: F401
    except Exception as error:  # a wheel for another machine fails in its own ways
        yield Line("torch", f"cannot be imported: {error}", "missing", "install it again: pip install saccade")
        return
    yield from machine()
    yield hub()
    yield from checks()


def versions() -> Iterator[Line]:
    """Python, and every package that saccade needs or can use."""
    yield Line(
        "python", f"{platform.python_version()} on {platform.platform()}", *_within(sys.version_info[:2], ">=3.11")
    )
    try:
        needed = metadata.requires("saccade") or []
    except metadata.PackageNotFoundError:
        yield Line("saccade", "runs from its source and is not installed", "warning", "pip install --editable .")
        return
    yield Line("saccade", metadata.version("saccade"))
    extras: dict[str, list[str]] = {}
    for text in needed:
        name, bounds, extra = requirement(text)
        found = installed(name)
        if extra:
            extras.setdefault(extra, []).extend([] if found else [name])
        elif not found:
            yield Line(name, f"not there; {bounds} is needed", "missing", f"pip install '{name}{bounds}'")
        else:
            yield Line(name, found, *_within(numbers(found), bounds))
    for extra, gone in extras.items():
        found = f"not there: {', '.join(gone)} (optional: pip install 'saccade[{extra}]')" if gone else "there"
        yield Line(f"extra {extra}", found)


def requirement(text: str) -> tuple[str, str, str]:
    """The name of a package, its bounds, and the extra that asks for it.

    >>> requirement("torch<2.14,>=2.10"), requirement("pyarrow>=15; extra == 'data'")
    (('torch', '<2.14,>=2.10', ''), ('pyarrow', '>=15', 'data'))
    """
    wanted, _, marker = text.partition(";")
    found = re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*(.*)", wanted.strip())
    assert found, f"metadata names a package first: {text}"
    extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
    return found[1], found[2].strip(), extra[1] if extra else ""


def installed(name: str) -> str:
    """The version of a package, or nothing."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def numbers(version: str) -> tuple[int, ...]:
    """
    >>> numbers("2.13.0+cpu")
    (2, 13, 0)
    """
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _within(version: tuple[int, ...], bounds: str) -> tuple:
    """State and remedy; a version that was never tried is a warning, one that is too old a lack.

    >>> _within((2, 9), "<2.14,>=2.10"), _within((2, 14, 1), "<2.14,>=2.10")[0], _within((2, 13), "<2.14,>=2.10")
    (('missing', 'too old; >=2.10 is needed'), 'warning', ('ok', ''))
    """
    for bound in bounds.split(","):
        edge = numbers(bound.lstrip("<>=~! "))
        if bound.startswith(">=") and version < edge:
            return "missing", f"too old; {bound} is needed"
        if bound.startswith("<") and not bound.startswith("<=") and version >= edge:
            return "warning", f"newer than what saccade was tested with ({bound})"
    return "ok", ""


def machine() -> Iterator[Line]:
    """Cores, threads, instructions, memory, disk, devices."""
    import torch

    from saccade.heap import available

    yield threads(cores(), torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS", ""))
    have = {"MKL": torch.backends.mkl.is_available(), "oneDNN": torch.backends.mkldnn.is_available()}
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    library = ", ".join([f"BLAS {blas[1] if blas else 'unknown'}", *(name for name, there in have.items() if there)])
    slow = "install a torch built with MKL or OpenBLAS" if blas is None and not have["MKL"] else ""
    yield Line("arithmetic", library, "warning" if slow else "ok", slow)
    vector = torch.backends.cpu.get_cpu_capability()
    plain = "no vector instructions that torch knows: expect a tenth of the speed" if vector in PLAIN else ""
    yield Line("instructions", vector, "warning" if plain else "ok", plain)
    free = available()
    yield room("memory", free, least=0.5 * GIGA, good=2 * GIGA, todo="stop other programs, or lower train.tokens")
    yield disk(Path.cwd(), shutil.disk_usage(Path.cwd()).free)
    cards = (
        [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    )
    cards += ["mps"] if torch.backends.mps.is_available() else []
    yield Line("devices", ", ".join(["cpu", *cards]))


def threads(cores: int, used: int, asked: str) -> Line:
    """More threads than cores wait for each other and make short steps many times slower."""
    found = f"{cores} cores, torch uses {used} threads" + (f", OMP_NUM_THREADS={asked}" if asked else "")
    most = max(used, int(asked) if asked.isdigit() else 0)
    if most > cores:
        return Line("cores", found, "warning", f"{most} threads wait for {cores} cores; set OMP_NUM_THREADS={cores}")
    return Line("cores", found)


def room(name: str, free: int | None, *, least: float, good: float, todo: str) -> Line:
    """Bytes that are free, and whether they are enough."""
    if free is None:
        return Line(name, "nobody says how much is free", "warning", todo)
    state = "missing" if free < least else "warning" if free < good else "ok"
    return Line(name, f"{free / GIGA:,.1f} GB free", state, "" if state == "ok" else todo)


def disk(where: Path, free: int) -> Line:
    """The current directory, where runs are written."""
    if not os.access(where, os.W_OK):
        return Line("disk", f"{where} cannot be written", "warning", "go to a directory of your own, or use --out")
    todo = f"{where} is nearly full; make room, or write elsewhere with --out"
    return room("disk", free, least=0.05 * GIGA, good=2 * GIGA, todo=todo)


def hub() -> Line:
    """Where models from the hub are kept, and whether it may be asked."""
    from huggingface_hub import constants

    place = Path(constants.HF_HUB_CACHE)
    kept = len(list(place.glob("models--*"))) if place.is_dir() else 0
    asked = "offline (HF_HUB_OFFLINE is set)" if constants.HF_HUB_OFFLINE else "may be asked"
    return Line("hub", f"{asked}; {kept} models in {place}")
