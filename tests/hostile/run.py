"""Load hostile directories one after the other and write down what happened: `python -m hostile.run HOME < names`.

The process watches itself with an audit hook. A line of JSON goes out before and after each directory, so whoever reads can
tell which one killed it.
"""

import json
import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path
from types import CodeType
from typing import Any

from hostile.bases import build
from hostile.case import Case
from hostile.models import CASES
from saccade.bench.measure import read_peak_memory
from saccade.models.load import load

TEXT = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b the bank, 12345 " * 4 + "!"
SECONDS, MEMORY = 30, 2 << 30  # of the processor; what kills the process, and the test asks for less
PATIENCE = 600  # seconds of the clock, for what waits for something that never comes
NEVER = {
    "pickle": ("find_class",),
    "os": ("system", "exec", "fork", "posix_spawn", "spawn", "startfile"),
    "subprocess": ("Popen",),
    "ctypes": ("dlopen",),
    "socket": ("__new__", "connect", "bind", "getaddrinfo", "gethostbyname"),
}
CHANGES = ("remove", "rename", "mkdir", "rmdir", "link", "symlink", "chmod", "truncate", "utime")
FORBIDDEN = {f"{kind}.{name}" for kind, names in NEVER.items() for name in names} | {f"os.{name}" for name in CHANGES}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

events: list[str] = []
watching = False


def hook(event: str, args: tuple[Any, ...]) -> None:
    """Note what loading a model must never do."""
    if not watching:
        return
    wrong = event in FORBIDDEN
    if event == "open":
        wrong = bool(args[2] & WRITES)
    elif event == "exec":  # modules of the library may be imported late; nothing else is run
        code = args[0]
        file = code.co_filename if isinstance(code, CodeType) else "<text>"
        wrong = (file.startswith("<") and "frozen" not in file) or str(home) in file
    elif event in ("compile", "import"):
        wrong = str(home) in repr(args)
    if wrong:
        events.append(f"{event} {args!r:.200}")


def peak() -> float:
    """The most memory this process has held since the mark was last put down, in MB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def attempt(one: Case, path: Path) -> dict[str, Any]:
    """Load one directory, and where that succeeds encode a modest text; nothing may get past the `except`."""
    global watching
    events.clear()
    before = listing(path)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    base, start = peak(), time.process_time()
    watching = True
    try:
        model = load(path)
        if model.tokenizer is not None:
            model.tokenizer.encode(TEXT)
        kind, said = "loaded", str(model.report)
    except BaseException as error:
        kind, said = type(error).__name__ if not isinstance(error, ValueError) else "ValueError", str(error)
    watching = False
    seconds = time.process_time() - start
    changed = [] if listing(path) == before else ["the directory was changed"]
    foreign = [n for n, m in sys.modules.items() if str(home) in str(getattr(m, "__file__", None))]
    used = round(peak() - base, 1)
    return {"kind": kind, "said": said, "seconds": seconds, "used": used, "events": events + changed + foreign}


def listing(path: Path) -> list[tuple[str, int, int]]:
    """Every file of a directory with its size and time."""
    found = [(p, p.lstat()) for p in sorted(path.rglob("*"))]
    return [(str(p), info.st_size, info.st_mtime_ns) for p, info in found]


def main(names: list[str]) -> None:
    for name in ("outside.safetensors", "outside.json"):
        (home / name).write_text("{}", encoding="utf-8")
    (home / "outside").mkdir()
    (home / "outside" / "config.json").write_text('{"pooling_mode_cls_token": true}', encoding="utf-8")
    build(home / "bases")
    for base in sorted((home / "bases").iterdir()):  # whole ones load; and what is imported late is imported now
        load(base).tokenizer.encode(TEXT)
    held = read_peak_memory()[0] or 0
    virtual = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    most = max(held, virtual) + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    os.chdir(home)
    for name in names:
        print(json.dumps({"name": name}), flush=True)
        one, path = CASES[name], home / "model"
        shutil.copytree(home / "bases" / one.base, path)
        (path / "evil.py").write_text("raise SystemExit('ran')", encoding="utf-8")
        one.write(path)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(PATIENCE)
        done = attempt(one, path)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        print(json.dumps({"name": name, **done}), flush=True)
        shutil.rmtree(path)


if __name__ == "__main__":
    home = Path(sys.argv[1]).resolve()
    sys.addaudithook(hook)
    main(json.load(sys.stdin))
