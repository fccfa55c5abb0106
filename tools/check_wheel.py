"""Check an installed wheel: `make wheel-test` runs this in the directory that it was installed into, without the source tree.

Every module imports, no file of the package is missing, the command answers, and a small model is trained and read again.
"""

import os
import pkgutil
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import saccade

SOURCE = Path(__file__).parents[1] / "src" / "saccade"


def main() -> None:
    package = Path(saccade.__file__).parent
    assert package == Path.cwd() / "saccade", f"{package} is not the wheel"
    missing = [
        path.relative_to(SOURCE)
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not (package / path.relative_to(SOURCE)).exists()
    ]
    assert not missing, f"files of the package that the wheel lacks: {missing}"
    for module in pkgutil.walk_packages([str(package)], "saccade."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    with tempfile.TemporaryDirectory() as out:
        run = str(Path(out) / "run")
        train = ["train", "label", "--out", run, "--train.max-steps", "2", "--train.device", "cpu"]
        for words in (["--version"], train, ["predict", run, "a text"]):
            call = [sys.executable, "-m", "saccade", *words]
            done = subprocess.run(call, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()})
            assert done.returncode == 0, done.stderr
    print(f"the wheel of saccade {saccade.__version__} imports and runs")


if __name__ == "__main__":
    main()
