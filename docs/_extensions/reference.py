"""The reference: a page for each public package, made from its docstrings, and one for each command, made from its help.

The pages are written below docs/reference/ before Sphinx reads its sources. They are not kept in the repository.
"""

import inspect
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

PACKAGES = {
    "saccade": "Top level",
    "saccade.attention": "Attention mechanisms, patterns, and watch",
    "saccade.parts": "Building blocks of models",
    "saccade.models": "Model families, loading and saving",
    "saccade.text": "Tokenizers",
    "saccade.vision": "Images",
    "saccade.data": "Data files, examples and batches",
    "saccade.metrics": "Metrics with confidence intervals",
    "saccade.tasks": "Tasks",
    "saccade.training": "Training",
    "saccade.decoding": "Decoding",
    "saccade.engine": "Optimized inference",
    "saccade.explain": "Attention maps and explanations",
    "saccade.audit": "Audits and model cards",
    "saccade.checking": "Invariants of attention",
    "saccade.sklearn": "scikit-learn estimators",
    "saccade.errors": "Errors",
}


def public_names(module: ModuleType) -> list[str]:
    """The names that a package makes public: `__all__`, or else what its `__dir__` or its own definitions name."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    names = [name for name in dir(module) if not name.startswith("_")]
    kept = []
    for name in names:
        value = getattr(module, name)
        if isinstance(value, ModuleType) or not getattr(value, "__module__", "").startswith("saccade"):
            continue
        if hasattr(module, "__getattr__") or value.__module__ == module.__name__:
            kept.append(name)
    return kept


def package_page(name: str, title: str) -> str:
    module = import_module(name)
    lines = [f"# {title}", "", f"`{name}`: {inspect.getdoc(module) or ''}", ""]
    classes, functions, values = [], [], []
    for item in public_names(module):
        value = getattr(module, item)
        (classes if inspect.isclass(value) else functions if inspect.isroutine(value) else values).append(item)
    for heading, directive, items in (("Functions", "autofunction", functions), ("Classes", "autoclass", classes)):
        if items:
            lines += [f"## {heading}", ""]
        for item in sorted(items, key=str.lower):
            options = [":members:"] if directive == "autoclass" else []
            if name == "saccade.sklearn":  # scikit-learn writes methods of its own into every estimator
                own = [
                    method for method in ("fit", "predict", "predict_proba") if hasattr(getattr(module, item), method)
                ]
                options[0] += f" {', '.join(own)}"
            if name != "saccade" and getattr(module, item).__module__ == "saccade.errors":  # at the top level too
                options.append(":no-index:")
            lines += ["```{eval-rst}", f".. {directive}:: {name}.{item}", *(f"   {option}" for option in options)]
            lines += ["```", ""]
    if values:
        lines += ["## Values", ""]
        lines += [f"- `{name}.{item}`: `{type(getattr(module, item)).__name__}`" for item in sorted(values)]
    return "\n".join(lines) + "\n"


def run_help(words: list[str]) -> str:
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    call = [sys.executable, "-m", "saccade", *words, "--help"]
    return subprocess.run(call, capture_output=True, text=True, check=True, env=environment).stdout


def commands_page() -> str:
    from saccade.cli import COMMANDS

    lines = ["# Command line", "", "The help of every command, as `saccade COMMAND --help` prints it.", ""]
    lines += ["```text", run_help([]).rstrip(), "```", ""]
    for command in COMMANDS:
        lines += [f"## saccade {command}", "", "```text", run_help([command]).rstrip(), "```", ""]
    return "\n".join(lines)


def write_pages(app) -> None:
    folder = Path(app.srcdir) / "reference"
    folder.mkdir(exist_ok=True)
    pages = {name.replace(".", "-"): package_page(name, title) for name, title in PACKAGES.items()}
    pages["command-line"] = commands_page()
    listed = "\n".join(pages)
    pages["index"] = (
        "# Reference\n\nEvery public name with its docstring, and the help of every command.\n\n"
        f"```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
    )
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def mark_code(app, what, name, obj, options, lines: list[str]) -> None:
    """Indented code in a docstring is a literal block; docstrings are written for readers of plain text, without `::`."""
    result: list[str] = []
    in_section = False
    for number, line in enumerate(lines):
        previous = next((text for text in reversed(lines[:number]) if text.strip()), "")
        if line and not line[0].isspace():
            in_section = line.rstrip() in {
                "Args:",
                "Returns:",
                "Raises:",
                "Yields:",
                "Attributes:",
                "Example:",
                "Note:",
            }
        starts = line.startswith("    ") and (number == 0 or not lines[number - 1].strip()) and line.strip()
        if starts and not in_section and not previous.startswith(" ") and not line.strip().startswith(">>>"):
            result += ["::", ""]
        result.append(line)
    lines[:] = result


def setup(app):
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", mark_code, priority=10)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
