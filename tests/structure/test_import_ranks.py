"""The map of the house as a test: a module imports from its own package or from a lower rank."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "saccade"
RANKS = {
    "attention": 0,
    "text": 0,
    "vision": 0,
    "audio": 0,
    "render": 0,
    "parts": 1,
    "data": 1,
    "models": 2,
    "metrics": 2,
    "baselines": 3,
    "decoding": 3,
    "engine": 4,
    "tasks": 5,
    "explain": 6,
    "training": 7,
    "audit": 7,
    "api": 8,
    "bench": 8,
    "checking": 8,
    "recipes": 8,
    "studies": 9,
    "lessons": 10,
    "viewer": 10,
    "serving": 11,
    "cli": 12,
}


def imports(tree):
    """(line, package of saccade) for every import, wherever it stands."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield node.lineno, None
            names = [node.module] if node.module != "saccade" else [f"saccade.{alias.name}" for alias in node.names]
        for name in names:
            parts = (name or "").split(".")
            if parts[0] == "saccade" and len(parts) > 1 and parts[1] in RANKS:
                yield node.lineno, parts[1]


def offences(package, path, text):
    """What breaks the rule, each with its line and where the code belongs."""
    for line, other in imports(ast.parse(text)):
        if other is None:
            yield f"{path}:{line}: write the whole name of a module, not a relative import."
        elif other != package and RANKS[other] >= RANKS[package]:
            room = f"rank {RANKS[other] + 1} or higher" if RANKS[other] < 12 else "cli"
            yield (
                f"{path}:{line}: {package} (rank {RANKS[package]}) imports {other} (rank {RANKS[other]}). "
                f"Code that needs {other} belongs in {other} itself or in a package of {room}; "
                f"what {package} needs of it belongs in a package below rank {RANKS[package]}."
            )


def test_every_import_points_down():
    found = []
    for path in sorted(SOURCE.glob("*/**/*.py")):
        package = path.relative_to(SOURCE).parts[0]
        assert package in RANKS, f"{path}: {package} is not a room of the house; give it a rank in {__file__}"
        found += offences(package, path.relative_to(SOURCE.parent), path.read_text(encoding="utf-8"))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("package", "text", "said"),
    [
        (
            "attention",
            "import torch\nfrom saccade.parts.stack import Stack\n",
            "a.py:2: attention (rank 0) imports parts",
        ),
        ("parts", "from saccade import data\n", "belongs in data itself or in a package of rank 2"),
        ("models", "def f():\n    import saccade.tasks.label\n", "a.py:2: models (rank 2) imports tasks (rank 5)"),
        ("parts", "from .stack import Stack\n", "not a relative import"),
    ],
)
def test_the_rule_names_the_line_and_the_room(package, text, said):
    assert said in "\n".join(offences(package, "a.py", text))


def test_the_rule_lets_good_imports_pass():
    text = "from saccade.attention import FULL\nfrom saccade.parts.state import State\nimport saccade\n"
    assert not list(offences("parts", "a.py", text))
