"""The examples of the docs and the README import only from `saccade` and its packages, where public names are listed."""

import ast
import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# deeper modules that some examples still need; the list may only become shorter
DEEPER = {
    "saccade.models.families.gpt2",
    "saccade.models.families.transformer",
    "saccade.tasks.predict",
    "saccade.tasks.runs.run",
    "saccade.text.counterfactual_words",
    "saccade.training.prepare",
}


def imports(text):
    """(module, name) of each import from saccade in the examples of a page."""
    for example in doctest.DocTestParser().get_examples(text):
        for node in ast.walk(ast.parse(example.source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "saccade":
                yield from ((node.module or "", alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names if alias.name.split(".")[0] == "saccade"]
                yield from ((name, "") for name in names)


def is_public(module):
    """Whether a module is `saccade`, one of its packages, or a single-file module at the top."""
    path = SOURCE.joinpath(*module.split("."))
    return (path / "__init__.py").is_file() or (module.count(".") == 1 and path.with_suffix(".py").is_file())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_import_only_public_names(page):
    for module, name in imports(page.read_text(encoding="utf-8")):
        assert is_public(module) or module in DEEPER, (
            f"{page.name} imports {name} from {module}; export it from its package"
        )
        assert not name or hasattr(import_module(module), name), (module, name)


def test_no_exception_is_left_over():
    used = {module for page in PAGES for module, _ in imports(page.read_text(encoding="utf-8"))}
    assert used >= DEEPER


def test_a_deeper_module_is_noticed():
    assert list(imports(">>> from saccade.parts.stack import Stack\n")) == [("saccade.parts.stack", "Stack")]
    assert not is_public("saccade.parts.stack")
    assert is_public("saccade.parts")
    assert is_public("saccade.sklearn")
