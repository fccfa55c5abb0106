"""Python's own documentation: running text for language models, and paragraphs with a topic.

The text is what the running Python brings along: the chapters behind `help()` and the docstrings of a fixed list of modules.
Modules are parsed, never imported, so nothing of theirs runs. Other versions of Python have other words here and there, so
examples are equal only under the same version.

`docs` shuffles chapters and modules by the seed and keeps the lines of each in their order, with a line that names it before
and an empty line after. `topics` takes paragraphs of prose, each once and on one line, and labels them with the group that
the module belongs to (`language` for the chapters); the groups are equally large.
"""

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from importlib.abc import InspectLoader

from saccade.data.example import Example
from saccade.data.samples.base import Sample, check_count, make_examples, make_random

MODULES_BY_TOPIC = {
    "text": "argparse configparser csv difflib json optparse re string textwrap getopt gettext locale html cmd shlex pprint",
    "mathematics": "_pydecimal statistics fractions random numbers heapq bisect datetime calendar colorsys operator",
    "files": "shutil tarfile zipfile tempfile gzip bz2 lzma filecmp fileinput glob fnmatch _pyio pathlib plistlib wave shelve",
    "network": "ftplib imaplib smtplib poplib socket socketserver ssl ipaddress mailbox mimetypes base64 webbrowser uuid",
    "debugging": "doctest inspect logging pdb bdb trace traceback dis timeit profile pstats warnings",
}
UNLABELED_MODULES = "collections contextlib enum functools pickle queue subprocess threading turtle typing weakref"
MIN_PARAGRAPH_CHARACTERS = 60  # characters of a paragraph; below are headings and remarks that could stand anywhere


@cache
def load_help_topics() -> dict[str, str]:
    """The texts behind `help("topic")`, by topic."""
    from pydoc_data.topics import topics

    return {name: topics[name].strip() for name in sorted(topics)}


@cache
def extract_docstrings(name: str) -> tuple[str, ...]:
    """The docstrings of a module of the standard library, of its classes and functions, in the order in which they stand."""
    spec = importlib.util.find_spec(name)
    text = spec.loader.get_source(name) if spec and isinstance(spec.loader, InspectLoader) else None
    if text is None:
        return ()  # this Python has the module without its source
    return tuple(_iter_docstrings(ast.parse(text)))


def _iter_docstrings(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    if found := (ast.get_docstring(node) or "").strip():
        yield found
    if isinstance(node, ast.Module | ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _iter_docstrings(inner)


@cache
def load_documents() -> dict[str, str]:
    """All texts by name, chapters first."""
    names = [name for group in (*MODULES_BY_TOPIC.values(), UNLABELED_MODULES) for name in group.split()]
    found = {name: "\n\n".join(extract_docstrings(name)) for name in names}
    return {f"topic {name}": text for name, text in load_help_topics().items()} | {
        f"module {name}": text for name, text in found.items() if text
    }


def make(count: int, seed: int) -> list[Example]:
    """Examples with a `line`, its newline kept; one after the other they are running text."""
    names = list(load_documents())
    make_random("docs", seed).shuffle(names)
    lines = [line + "\n" for name in names for line in f"{name}\n\n{load_documents()[name]}\n".split("\n")]
    check_count("docs", count, len(lines))
    return make_examples("docs", ({"text": line} for line in lines[:count]))


@cache
def load_paragraphs() -> dict[str, tuple[str, ...]]:
    """Prose by group; what stands in more than one place is left out after the first."""
    found = {
        group: [text for name in names.split() for text in extract_docstrings(name)]
        for group, names in MODULES_BY_TOPIC.items()
    }
    found["language"] = list(load_help_topics().values())
    seen: set[str] = set()
    kept: dict[str, tuple[str, ...]] = {}
    for group, texts in found.items():
        prose = dict.fromkeys(
            _collapse_whitespace(part) for text in texts for part in re.split(r"\n\s*\n", text) if _is_prose(part)
        )
        kept[group] = tuple(part for part in prose if part not in seen)
        seen.update(prose)
    return kept


def make_topics(count: int, seed: int) -> list[Example]:
    """Examples with a `text`, one paragraph, and a `label`, the group that it comes from."""
    random = make_random("topics", seed)
    groups = load_paragraphs()
    each = min(len(texts) for texts in groups.values())
    check_count("topics", count, each * len(groups))
    columns = [[(group, text) for text in random.sample(texts, each)] for group, texts in groups.items()]
    rows = [pair for row in zip(*columns, strict=True) for pair in row][:count]
    random.shuffle(rows)
    return make_examples("topics", ({"text": text, "label": group} for group, text in rows))


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())


def _is_prose(text: str) -> bool:
    """Long enough, mostly letters, and neither code nor a session with the prompt."""
    letters = sum(character.isalpha() or character.isspace() for character in text)
    return (
        len(_collapse_whitespace(text)) >= MIN_PARAGRAPH_CHARACTERS
        and letters > 0.85 * len(text)
        and not re.search(r">>>|^ *\w+ = ", text, re.M)
    )


SAMPLES = (
    Sample("docs", "Python documentation as plain text, one line per record", ("language", "pretrain"), make, 24_000),
    Sample("topics", "paragraphs of the Python documentation with their topic", ("label",), make_topics, 1_800),
)
