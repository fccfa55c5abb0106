"""Metrics of the code structure: files that a command runs, type checks instead of declarations, sizes of interfaces.

    python tools/structure_metrics.py [--tree DIRECTORY] [--json FILE]

`files` is the number of the package's files in which some function runs while a command processes a small dataset; `opens` is
how often the dataset is opened. All other metrics come from the source code.
"""

import argparse
import ast
import builtins
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

TASKS = [
    "label",
    "pair",
    "span",
    "tag",
    "translate",
    "summarize",
    "language",
    "caption",
    "paint",
    "regress",
    "pretrain",
]
TRAIN = [
    "--train.max-steps",
    "2",
    "--model.width",
    "16",
    "--model.layers",
    "1",
    "--model.ffn-width",
    "16",
    "--model.heads",
    "2",
]


def count_files_and_opens(package: Path, command: list[str], data: Path | None) -> dict[str, int]:
    """Run a command in this process; count the files whose functions run, and how often the dataset is opened."""
    from saccade.cli import main

    files: set[str] = set()
    opens = 0

    def profile(frame, event, _):
        if event == "call" and frame.f_code.co_name != "<module>":
            name = frame.f_code.co_filename
            if name.startswith(str(package)):
                files.add(name)

    def audit(event, arguments):
        nonlocal opens
        if event == "open" and data is not None and isinstance(arguments[0], str | bytes | os.PathLike):
            opens += os.path.realpath(os.fsdecode(arguments[0])) == os.path.realpath(data)

    # import all modules first, so that code that runs at import does not count
    for module in walk_packages([str(package)], "saccade."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    sys.addaudithook(audit)
    sys.setprofile(profile)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = main(command)
    finally:
        sys.setprofile(None)
    assert code == 0, command
    return {"files": len(files), "opens": opens}


def measure_commands(tree: Path) -> dict[str, dict[str, int]]:
    """Measure each command in its own process."""
    with tempfile.TemporaryDirectory() as home:
        texts, pairs = Path(home) / "texts.tsv", Path(home) / "pairs.tsv"
        texts.write_text("text\tlabel\n" + "".join(f"text number {i}\t{'ab'[i % 2]}\n" for i in range(60)))
        pairs.write_text("source\ttarget\n" + "".join(f"number {i}\t{i} it is\n" for i in range(60)))
        commands = {
            "train label": (["train", "label", "--data", str(texts), "--out", f"{home}/label", *TRAIN], texts),
            "train translate": (["train", "translate", "--data", str(pairs), "--out", f"{home}/dates", *TRAIN], pairs),
            "translate": (["translate", f"{home}/dates", "number 3"], None),
            "look": (["look", f"{home}/label", "text number 3"], None),
        }
        counts = {}
        for name, (command, data) in commands.items():
            call = [sys.executable, __file__, "--child", json.dumps([command, str(data) if data else None])]
            process = subprocess.run(
                call, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tree / "src")}, cwd=home
            )
            assert process.returncode == 0, process.stderr
            counts[name] = json.loads(process.stdout)
        return counts


def count_probes(package: Path) -> dict[str, int]:
    """Calls of `isinstance(task, ...)` outside of tasks/, and of `hasattr(body, ...)` anywhere."""
    counts = {"tasks": 0, "bodies": 0}
    for path in sorted(package.rglob("*.py")):
        folder, text = path.relative_to(package).parts[0], path.read_text(encoding="utf-8")
        if folder != "tasks":
            counts["tasks"] += len(re.findall(r"isinstance\((?:\w+\.)*task, [A-Z]", text))
        counts["bodies"] += len(re.findall(r'hasattr\((?:\w+\.)*body, "', text))
    return counts


def count_tables(package: Path) -> list[str]:
    """Locations of collections with three or more task names; models/ is skipped, where the same names denote heads."""
    locations = []
    for path in sorted(set(package.rglob("*.py")) - set((package / "models").rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", None)
            if not isinstance(node, ast.Dict | ast.List | ast.Tuple | ast.Set) or items is None:
                continue
            names = [item.value for item in items if isinstance(item, ast.Constant) and item.value in TASKS]
            if len(names) >= 3:
                locations.append(f"{path.relative_to(package)}:{node.lineno}")
    return locations


def longest_arguments(package: Path) -> tuple[int, str]:
    """The function in parts/ with the most parameters, as (count, location)."""
    longest = (0, "")
    for path in sorted((package / "parts").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                count = len([*node.args.args, *node.args.kwonlyargs]) - (
                    node.args.args[:1] != [] and node.args.args[0].arg == "self"
                )
                longest = max(longest, (count, f"{path.relative_to(package)}:{node.name}"))
    return longest


def task_members() -> dict[str, int]:
    """The number of public members of `Task`: in total, and in the largest of its base classes."""
    from saccade.tasks.base import Task

    public = {
        name for base in Task.__mro__[:-1] for name in {*vars(base), *base.__annotations__} if not name.startswith("_")
    }
    widest = max(
        len({name for name in {*vars(base), *vars(base).get("__annotations__", {})} if not name.startswith("_")})
        for base in Task.__mro__[:-1]
    )
    return {"all": len(public), "widest class": widest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        import saccade

        command, data = json.loads(options.child)
        builtins.print(json.dumps(count_files_and_opens(Path(saccade.__file__).parent, command, data and Path(data))))
        return
    package = options.tree / "src" / "saccade"
    folder = str(Path(__file__).parent)
    imports = f"import sys; sys.path.insert(0, {folder!r}); import structure_metrics"
    code = f"{imports}; print(structure_metrics.task_members())"
    environment = {**os.environ, "PYTHONPATH": str(options.tree / "src")}
    members = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    tables = count_tables(package)
    count, name = longest_arguments(package)
    metrics = {
        "commands": measure_commands(options.tree.resolve()),
        "probes": count_probes(package),
        "tables that name tasks": {"count": len(tables), "where": tables},
        "members of Task": ast.literal_eval(members.stdout),
        "longest argument list of parts": {"count": count, "where": name},
    }
    text = json.dumps(metrics, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
