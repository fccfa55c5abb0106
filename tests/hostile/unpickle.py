"""Convert malicious pickles, each in a fork of its own: `python -m hostile.unpickle HOME` writes a line of JSON for each.

torch is imported once; a fork then does what the process of `saccade import --convert-pickle` does, limits included.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import safetensors.torch  # noqa: F401 - imported before the forks
import torch  # noqa: F401

from hostile import run
from hostile.pickles import FILES
from saccade.models.io import convert_pickle


def attempt(path: Path, target: Path) -> dict[str, Any]:
    """What came of one file, in this process."""
    start = time.process_time()  # of the processor: other work on the machine does not count
    try:
        convert_pickle._check_archive(path)
        convert_pickle._limit_resources(path.stat().st_size)
        run.watching = True
        convert_pickle._run_child(str(target), [str(path)])
        kind, said = "converted", ""
    except Exception as error:
        kind, said = "refused", convert_pickle._describe_refusal(error)
    run.watching = False
    events = [event for event in run.events if str(target) not in event]
    return {"kind": kind, "said": said, "seconds": time.process_time() - start, "events": events}


def main(home: Path) -> None:
    os.chdir(home)
    (home / "evil.py").write_text("open('ran', 'w')", encoding="utf-8")
    for name, content in FILES.items():
        path = home / "pytorch_model.bin"
        path.write_bytes(content)
        sys.stdout.flush()
        if not (child := os.fork()):
            done = attempt(path, home / "model.safetensors")
            print(json.dumps({"name": name, **done}), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            print(json.dumps({"name": name, "kind": f"died of {status}", "said": "", "seconds": 0, "events": []}))
        (home / "model.safetensors").unlink(missing_ok=True)


if __name__ == "__main__":
    run.home = Path(sys.argv[1]).resolve()
    sys.addaudithook(run.hook)
    main(run.home)
