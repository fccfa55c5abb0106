"""`saccade doctor`: check versions, hardware and small computations, and measure the speed of this machine."""

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
SCALAR_CPU_CAPABILITIES = ("DEFAULT", "NO AVX")  # torch's names for processors without vector instructions


def main(*, json: tyro.conf.FlagCreatePairsOff[bool] = False) -> int:
    """Check this machine: versions, cores, memory, devices, then small computations with a known result, and speed.

    Takes a few seconds, writes only to a temporary directory, and uses no network.

    Exit code: 0 saccade works on this machine, possibly with warnings; 5 something that it needs is missing or wrong.

    Args:
        json: Print the checks as JSON.
    """
    results: list[CheckResult] = []
    for result in run_all_checks():
        results.append(result)
        if not json:
            print(format_check(result), flush=True)
    missing = [result for result in results if result.status == "missing"]
    if json:
        print(encoder.dumps({"ok": not missing, "checks": [vars(result) for result in results]}))
    else:
        warnings = sum(result.status == "warning" for result in results)
        verdict = "Something is missing." if missing else "saccade works on this machine."
        print(f"\n{verdict}  {warnings} warnings, {len(missing)} missing")
    return 5 if missing else 0


def format_check(check: CheckResult) -> str:
    """The line of a check, and below it what to do unless it is ok."""
    first = f"{STATUS_LABELS[check.status]:8} {check.name:15} {check.result}"
    return f"{first}\n{'':24} -> {check.fix}" if check.fix else first


def run_all_checks() -> Iterator[CheckResult]:
    """Run every check: versions first, because the other checks need torch."""
    yield from check_versions()
    try:
        import torch  # noqa: F401
    except Exception as error:  # a wheel for another platform may raise any exception
        yield CheckResult("torch", f"cannot be imported: {error}", "missing", "install it again: pip install saccade")
        return
    yield from check_machine()
    yield check_hub()
    yield from run_checks()


def check_versions() -> Iterator[CheckResult]:
    """Check the versions of Python and of every required or optional package."""
    yield CheckResult(
        "python",
        f"{platform.python_version()} on {platform.platform()}",
        *_check_bounds(sys.version_info[:2], ">=3.11"),
    )
    try:
        needed = metadata.requires("saccade") or []
    except metadata.PackageNotFoundError:
        yield CheckResult("saccade", "runs from source, not installed", "warning", "pip install --editable .")
        return
    yield CheckResult("saccade", metadata.version("saccade"))
    extras: dict[str, list[str]] = {}
    for text in needed:
        name, bounds, extra = parse_requirement(text)
        installed = find_installed_version(name)
        if extra:
            extras.setdefault(extra, []).extend([] if installed else [name])
        elif not installed:
            yield CheckResult(name, f"not installed; {bounds} is needed", "missing", f"pip install '{name}{bounds}'")
        else:
            yield CheckResult(name, installed, *_check_bounds(parse_version(installed), bounds))
    for extra, absent in extras.items():
        optional = f"not installed: {', '.join(absent)} (optional: pip install 'saccade[{extra}]')"
        yield CheckResult(f"extra {extra}", optional if absent else "installed")


def parse_requirement(text: str) -> tuple[str, str, str]:
    """The name, version bounds and extra of a requirement.

    >>> parse_requirement("torch<2.14,>=2.10"), parse_requirement("pyarrow>=15; extra == 'data'")
    (('torch', '<2.14,>=2.10', ''), ('pyarrow', '>=15', 'data'))
    """
    requirement, _, marker = text.partition(";")
    match = re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*(.*)", requirement.strip())
    assert match, f"a requirement begins with the name of a package: {text}"
    extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
    return match[1], match[2].strip(), extra[1] if extra else ""


def find_installed_version(name: str) -> str:
    """The version of a package; "" if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def parse_version(version: str) -> tuple[int, ...]:
    """
    >>> parse_version("2.13.0+cpu")
    (2, 13, 0)
    """
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _check_bounds(version: tuple[int, ...], bounds: str) -> tuple:
    """Status and fix of a version: too old is missing, newer than the tested versions is a warning.

    >>> _check_bounds((2, 9), "<2.14,>=2.10"), _check_bounds((2, 13), "<2.14,>=2.10")
    (('missing', 'too old; >=2.10 is needed'), ('ok', ''))
    >>> _check_bounds((2, 14, 1), "<2.14,>=2.10")
    ('warning', 'newer than the versions that saccade was tested with (<2.14)')
    """
    for bound in bounds.split(","):
        limit = parse_version(bound.lstrip("<>=~! "))
        if bound.startswith(">=") and version < limit:
            return "missing", f"too old; {bound} is needed"
        if bound.startswith("<") and not bound.startswith("<=") and version >= limit:
            return "warning", f"newer than the versions that saccade was tested with ({bound})"
    return "ok", ""


def check_machine() -> Iterator[CheckResult]:
    """Check cores, threads, BLAS, vector instructions, memory, disk and devices."""
    import torch

    from saccade.system import available_memory

    yield check_threads(cpu_count(), torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS", ""))
    available = {"MKL": torch.backends.mkl.is_available(), "oneDNN": torch.backends.mkldnn.is_available()}
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    libraries = [f"BLAS {blas[1] if blas else 'unknown'}", *(name for name, has in available.items() if has)]
    fix = "install a torch built with MKL or OpenBLAS" if blas is None and not available["MKL"] else ""
    yield CheckResult("arithmetic", ", ".join(libraries), "warning" if fix else "ok", fix)
    vector = torch.backends.cpu.get_cpu_capability()
    scalar = vector in SCALAR_CPU_CAPABILITIES
    fix = "torch finds no vector instructions; expect a tenth of the speed" if scalar else ""
    yield CheckResult("instructions", vector, "warning" if fix else "ok", fix)
    fix = "stop other programs, or lower --train.batch-tokens"
    limits = {"min_bytes": 0.5 * BYTES_PER_GB, "enough_bytes": 2 * BYTES_PER_GB}
    yield check_free_bytes("memory", available_memory(), **limits, fix=fix)
    yield check_disk(Path.cwd(), shutil.disk_usage(Path.cwd()).free)
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    devices = ["cpu", *(torch.cuda.get_device_name(i) for i in gpus)]
    yield CheckResult("devices", ", ".join([*devices, "mps"] if torch.backends.mps.is_available() else devices))


def check_threads(cores: int, torch_threads: int, requested: str) -> CheckResult:
    """Check that there are no more threads than cores: they would wait for each other and make short steps many times slower."""
    omp = f", OMP_NUM_THREADS={requested}" if requested else ""
    result = f"{cores} cores, torch uses {torch_threads} threads{omp}"
    threads = max(torch_threads, int(requested) if requested.isdigit() else 0)
    if threads > cores:
        fix = f"{threads} threads compete for {cores} cores; set OMP_NUM_THREADS={cores}"
        return CheckResult("cores", result, "warning", fix)
    return CheckResult("cores", result)


def check_free_bytes(name: str, free: int | None, *, min_bytes: float, enough_bytes: float, fix: str) -> CheckResult:
    """Check that there are at least `min_bytes` free bytes, and preferably `enough_bytes`."""
    if free is None:
        return CheckResult(name, "free space is unknown", "warning", fix)
    status = "missing" if free < min_bytes else "warning" if free < enough_bytes else "ok"
    return CheckResult(name, f"{free / BYTES_PER_GB:,.1f} GB free", status, "" if status == "ok" else fix)


def check_disk(directory: Path, free: int) -> CheckResult:
    """Check that the current directory, where runs are written, is writable and has free space."""
    if not os.access(directory, os.W_OK):
        fix = "change to a directory that you can write to, or use --out"
        return CheckResult("disk", f"{directory} is not writable", "warning", fix)
    fix = f"{directory} is nearly full; free some space, or write elsewhere with --out"
    return check_free_bytes("disk", free, min_bytes=0.05 * BYTES_PER_GB, enough_bytes=2 * BYTES_PER_GB, fix=fix)


def check_hub() -> CheckResult:
    """Check whether downloads from the Hugging Face hub are enabled, and count the models in its cache."""
    from huggingface_hub import constants

    cache = Path(constants.HF_HUB_CACHE)
    count = len(list(cache.glob("models--*"))) if cache.is_dir() else 0
    state = "offline (HF_HUB_OFFLINE is set)" if constants.HF_HUB_OFFLINE else "online"
    return CheckResult("hub", f"{state}; {count} models in the cache {cache}")
