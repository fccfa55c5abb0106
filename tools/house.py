"""Measures of the code's structure: what a command touches, what is probed instead of declared, how wide interfaces are.

    python tools/house.py [--tree DIRECTORY] [--json FILE]

`files` is the number of the package's files in which a function runs while a command does its work on a small file of texts;
`opens` is how often that file is opened. The rest is read off the source.
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


def count_files_and_opens(package: Path, words: list[str], data: Path | None) -> dict[str, int]:
    """Run one command in this process, and count the files whose functions run and the times that the data is opened."""
    from saccade.cli import main

    ran: set[str] = set()
    opened = 0

    def profile(frame, event, _):
        if event == "call" and frame.f_code.co_name != "<module>":
            name = frame.f_code.co_filename
            if name.startswith(str(package)):
                ran.add(name)

    def audit(event, arguments):
        nonlocal opened
        if event == "open" and data is not None and isinstance(arguments[0], str | bytes | os.PathLike):
            opened += os.path.realpath(os.fsdecode(arguments[0])) == os.path.realpath(data)

    for module in walk_packages(
        [str(package)], "saccade."
    ):  # so that what runs while modules are imported does not count
        if not module.name.endswith("__main__"):
            import_module(module.name)
    sys.addaudithook(audit)
    sys.setprofile(profile)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = main(words)
    finally:
        sys.setprofile(None)
    assert code == 0, words
    return {"files": len(ran), "opens": opened}


def measure_commands(tree: Path) -> dict[str, dict[str, int]]:
    """Each command in a process of its own."""
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
        found = {}
        for name, (words, data) in commands.items():
            call = [sys.executable, __file__, "--one", json.dumps([words, str(data) if data else None])]
            done = subprocess.run(
                call, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tree / "src")}, cwd=home
            )
            assert done.returncode == 0, done.stderr
            found[name] = json.loads(done.stdout)
        return found


def count_probes(package: Path) -> dict[str, int]:
    """`isinstance(task, ...)` outside of tasks/, and `hasattr` or `getattr` of a body outside of models/."""
    found = {"tasks": 0, "bodies": 0}
    for path in sorted(package.rglob("*.py")):
        room, text = path.relative_to(package).parts[0], path.read_text(encoding="utf-8")
        if room != "tasks":
            found["tasks"] += len(re.findall(r"isinstance\((?:\w+\.)*task, [A-Z]", text))
        found["bodies"] += len(re.findall(r'hasattr\((?:\w+\.)*body, "', text))
    return found


def count_tables(package: Path) -> list[str]:
    """Dictionaries, lists and tuples of three or more names of tasks; in models/ the same names are those of heads."""
    found = []
    for path in sorted(set(package.rglob("*.py")) - set((package / "models").rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", None)
            if not isinstance(node, ast.Dict | ast.List | ast.Tuple | ast.Set) or items is None:
                continue
            names = [item.value for item in items if isinstance(item, ast.Constant) and item.value in TASKS]
            if len(names) >= 3:
                found.append(f"{path.relative_to(package)}:{node.lineno}")
    return found


def longest_arguments(package: Path) -> tuple[int, str]:
    """The function of parts/ with the most parameters."""
    found = (0, "")
    for path in sorted((package / "parts").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                count = len([*node.args.args, *node.args.kwonlyargs]) - (
                    node.args.args[:1] != [] and node.args.args[0].arg == "self"
                )
                found = max(found, (count, f"{path.relative_to(package)}:{node.name}"))
    return found


def task_members() -> dict[str, int]:
    """Public members of `Task`: in all, and of the widest of the classes that it is made of."""
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
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        import saccade

        words, data = json.loads(asked.one)
        builtins.print(json.dumps(count_files_and_opens(Path(saccade.__file__).parent, words, data and Path(data))))
        return
    package = asked.tree / "src" / "saccade"
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import house; print(house.task_members())"
    environment = {**os.environ, "PYTHONPATH": str(asked.tree / "src")}
    members = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    tables = count_tables(package)
    count, name = longest_arguments(package)
    found = {
        "commands": measure_commands(asked.tree.resolve()),
        "probes": count_probes(package),
        "tables that name tasks": {"count": len(tables), "where": tables},
        "members of Task": ast.literal_eval(members.stdout),
        "longest argument list of parts": {"count": count, "where": name},
    }
    text = json.dumps(found, indent=1)
    print(text)
    if asked.json:
        asked.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
