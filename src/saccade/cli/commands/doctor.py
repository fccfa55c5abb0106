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

from saccade.cli.doctor_checks import CheckResult, run_checks
from saccade.system import cpu_count

STATUS_LABELS = {"ok": "ok", "warning": "warning", "missing": "MISSING"}
BYTES_PER_GB = 1e9
SCALAR_CPU_CAPABILITIES = (
    "DEFAULT",
    "NO AVX",
)  # what torch calls a processor without vector instructions that it knows


def main(*, json: tyro.conf.FlagCreatePairsOff[bool] = False) -> int:
    """Check this machine: versions, cores, memory, devices, then small computations with a known result, and speed.

    Takes a few seconds, writes only to a temporary directory, and uses no network.

    Exit code: 0 saccade works here, warnings included; 5 something that it needs is missing or wrong.

    Args:
        json: Print the checks as JSON.
    """
    lines: list[CheckResult] = []
    for line in run_all_checks():
        lines.append(line)
        if not json:
            print(format_check(line), flush=True)
    bad = [line for line in lines if line.status == "missing"]
    if json:
        print(encoder.dumps({"ok": not bad, "checks": [vars(line) for line in lines]}))
    else:
        warned = sum(line.status == "warning" for line in lines)
        print(f"\n{'Something is missing.' if bad else 'saccade works here.'}  {warned} warnings, {len(bad)} missing")
    return 5 if bad else 0


def format_check(check: CheckResult) -> str:
    """One line, and below it what to do."""
    first = f"{STATUS_LABELS[check.status]:8} {check.name:15} {check.result}"
    return f"{first}\n{'':24} -> {check.fix}" if check.fix else first


def run_all_checks() -> Iterator[CheckResult]:
    """Versions first: without torch the rest cannot be looked at."""
    yield from check_versions()
    try:
        import torch  # noqa: F401
    except Exception as error:  # a wheel for another machine fails in its own ways
        yield CheckResult("torch", f"cannot be imported: {error}", "missing", "install it again: pip install saccade")
        return
    yield from check_machine()
    yield check_hub()
    yield from run_checks()


def check_versions() -> Iterator[CheckResult]:
    """Python, and every package that saccade needs or can use."""
    yield CheckResult(
        "python",
        f"{platform.python_version()} on {platform.platform()}",
        *_check_bounds(sys.version_info[:2], ">=3.11"),
    )
    try:
        needed = metadata.requires("saccade") or []
    except metadata.PackageNotFoundError:
        yield CheckResult("saccade", "runs from its source and is not installed", "warning", "pip install --editable .")
        return
    yield CheckResult("saccade", metadata.version("saccade"))
    extras: dict[str, list[str]] = {}
    for text in needed:
        name, bounds, extra = parse_requirement(text)
        found = find_installed_version(name)
        if extra:
            extras.setdefault(extra, []).extend([] if found else [name])
        elif not found:
            yield CheckResult(name, f"not there; {bounds} is needed", "missing", f"pip install '{name}{bounds}'")
        else:
            yield CheckResult(name, found, *_check_bounds(parse_version(found), bounds))
    for extra, gone in extras.items():
        found = f"not there: {', '.join(gone)} (optional: pip install 'saccade[{extra}]')" if gone else "there"
        yield CheckResult(f"extra {extra}", found)


def parse_requirement(text: str) -> tuple[str, str, str]:
    """The name of a package, its bounds, and the extra that asks for it.

    >>> parse_requirement("torch<2.14,>=2.10"), parse_requirement("pyarrow>=15; extra == 'data'")
    (('torch', '<2.14,>=2.10', ''), ('pyarrow', '>=15', 'data'))
    """
    wanted, _, marker = text.partition(";")
    found = re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*(.*)", wanted.strip())
    assert found, f"metadata names a package first: {text}"
    extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
    return found[1], found[2].strip(), extra[1] if extra else ""


def find_installed_version(name: str) -> str:
    """The version of a package, or nothing."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def parse_version(version: str) -> tuple[int, ...]:
    """
    >>> parse_version("2.13.0+cpu")
    (2, 13, 0)
    """
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _check_bounds(version: tuple[int, ...], bounds: str) -> tuple:
    """State and remedy; a version that was never tried is a warning, one that is too old a lack.

    >>> _check_bounds((2, 9), "<2.14,>=2.10"), _check_bounds((2, 14, 1), "<2.14,>=2.10")[0], _check_bounds((2, 13), "<2.14,>=2.10")
    (('missing', 'too old; >=2.10 is needed'), 'warning', ('ok', ''))
    """
    for bound in bounds.split(","):
        edge = parse_version(bound.lstrip("<>=~! "))
        if bound.startswith(">=") and version < edge:
            return "missing", f"too old; {bound} is needed"
        if bound.startswith("<") and not bound.startswith("<=") and version >= edge:
            return "warning", f"newer than what saccade was tested with ({bound})"
    return "ok", ""


def check_machine() -> Iterator[CheckResult]:
    """Cores, threads, instructions, memory, disk, devices."""
    import torch

    from saccade.system import available_memory

    yield check_threads(cpu_count(), torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS", ""))
    have = {"MKL": torch.backends.mkl.is_available(), "oneDNN": torch.backends.mkldnn.is_available()}
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    library = ", ".join([f"BLAS {blas[1] if blas else 'unknown'}", *(name for name, there in have.items() if there)])
    slow = "install a torch built with MKL or OpenBLAS" if blas is None and not have["MKL"] else ""
    yield CheckResult("arithmetic", library, "warning" if slow else "ok", slow)
    vector = torch.backends.cpu.get_cpu_capability()
    plain = (
        "no vector instructions that torch knows: expect a tenth of the speed"
        if vector in SCALAR_CPU_CAPABILITIES
        else ""
    )
    yield CheckResult("instructions", vector, "warning" if plain else "ok", plain)
    free = available_memory()
    yield check_free_bytes(
        "memory",
        free,
        min_bytes=0.5 * BYTES_PER_GB,
        enough_bytes=2 * BYTES_PER_GB,
        fix="stop other programs, or lower train.batch_tokens",
    )
    yield check_disk(Path.cwd(), shutil.disk_usage(Path.cwd()).free)
    cards = (
        [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    )
    cards += ["mps"] if torch.backends.mps.is_available() else []
    yield CheckResult("devices", ", ".join(["cpu", *cards]))


def check_threads(cores: int, torch_threads: int, requested: str) -> CheckResult:
    """More threads than cores wait for each other and make short steps many times slower."""
    found = f"{cores} cores, torch uses {torch_threads} threads" + (
        f", OMP_NUM_THREADS={requested}" if requested else ""
    )
    most = max(torch_threads, int(requested) if requested.isdigit() else 0)
    if most > cores:
        return CheckResult(
            "cores", found, "warning", f"{most} threads wait for {cores} cores; set OMP_NUM_THREADS={cores}"
        )
    return CheckResult("cores", found)


def check_free_bytes(name: str, free: int | None, *, min_bytes: float, enough_bytes: float, fix: str) -> CheckResult:
    """Bytes that are free, and whether they are enough."""
    if free is None:
        return CheckResult(name, "nobody says how much is free", "warning", fix)
    state = "missing" if free < min_bytes else "warning" if free < enough_bytes else "ok"
    return CheckResult(name, f"{free / BYTES_PER_GB:,.1f} GB free", state, "" if state == "ok" else fix)


def check_disk(directory: Path, free: int) -> CheckResult:
    """The current directory, where runs are written."""
    if not os.access(directory, os.W_OK):
        return CheckResult(
            "disk", f"{directory} cannot be written", "warning", "go to a directory of your own, or use --out"
        )
    todo = f"{directory} is nearly full; make room, or write elsewhere with --out"
    return check_free_bytes("disk", free, min_bytes=0.05 * BYTES_PER_GB, enough_bytes=2 * BYTES_PER_GB, fix=todo)


def check_hub() -> CheckResult:
    """Where models from the hub are kept, and whether it may be asked."""
    from huggingface_hub import constants

    place = Path(constants.HF_HUB_CACHE)
    kept = len(list(place.glob("models--*"))) if place.is_dir() else 0
    asked = "offline (HF_HUB_OFFLINE is set)" if constants.HF_HUB_OFFLINE else "may be asked"
    return CheckResult("hub", f"{asked}; {kept} models in {place}")
