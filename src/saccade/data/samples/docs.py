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

from saccade.data.item import Example
from saccade.data.samples.seeded import Sample, check, examples, source

GROUPS = {
    "text": "argparse configparser csv difflib json optparse re string textwrap getopt gettext locale html cmd shlex pprint",
    "mathematics": "_pydecimal statistics fractions random numbers heapq bisect datetime calendar colorsys operator",
    "files": "shutil tarfile zipfile tempfile gzip bz2 lzma filecmp fileinput glob fnmatch _pyio pathlib plistlib wave shelve",
    "network": "ftplib imaplib smtplib poplib socket socketserver ssl ipaddress mailbox mimetypes base64 webbrowser uuid",
    "debugging": "doctest inspect logging pdb bdb trace traceback dis timeit profile pstats warnings",
}
OTHERS = "collections contextlib enum functools pickle queue subprocess threading turtle typing weakref"
SHORTEST = 60  # characters of a paragraph; below are headings and remarks that could stand anywhere


@cache
def chapters() -> dict[str, str]:
    """The texts behind `help("topic")`, by topic."""
    from pydoc_data.topics import topics

    return {name: topics[name].strip() for name in sorted(topics)}


@cache
def docstrings(name: str) -> tuple[str, ...]:
    """The docstrings of a module of the standard library, of its classes and functions, in the order in which they stand."""
    spec = importlib.util.find_spec(name)
    text = spec.loader.get_source(name) if spec and isinstance(spec.loader, InspectLoader) else None
    if text is None:
        return ()  # this Python has the module without its source
    return tuple(_documented(ast.parse(text)))


def _documented(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    if found := (ast.get_docstring(node) or "").strip():
        yield found
    if isinstance(node, ast.Module | ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _documented(inner)


@cache
def documents() -> dict[str, str]:
    """All texts by name, chapters first."""
    names = [name for group in (*GROUPS.values(), OTHERS) for name in group.split()]
    found = {name: "\n\n".join(docstrings(name)) for name in names}
    return {f"topic {name}": text for name, text in chapters().items()} | {
        f"module {name}": text for name, text in found.items() if text
    }


def make(count: int, seed: int) -> list[Example]:
    """Examples with a `line`, its newline kept; one after the other they are running text."""
    names = list(documents())
    source("docs", seed).shuffle(names)
    lines = [line + "\n" for name in names for line in f"{name}\n\n{documents()[name]}\n".split("\n")]
    check("docs", count, len(lines))
    return examples("docs", ({"text": line} for line in lines[:count]))


@cache
def paragraphs() -> dict[str, tuple[str, ...]]:
    """Prose by group; what stands in more than one place is left out after the first."""
    found = {group: [text for name in names.split() for text in docstrings(name)] for group, names in GROUPS.items()}
    found["language"] = list(chapters().values())
    seen: set[str] = set()
    kept: dict[str, tuple[str, ...]] = {}
    for group, texts in found.items():
        prose = dict.fromkeys(_flat(part) for text in texts for part in re.split(r"\n\s*\n", text) if _is_prose(part))
        kept[group] = tuple(part for part in prose if part not in seen)
        seen.update(prose)
    return kept


def make_topics(count: int, seed: int) -> list[Example]:
    """Examples with a `text`, one paragraph, and a `label`, the group that it comes from."""
    random = source("topics", seed)
    groups = paragraphs()
    each = min(len(texts) for texts in groups.values())
    check("topics", count, each * len(groups))
    columns = [[(group, text) for text in random.sample(texts, each)] for group, texts in groups.items()]
    rows = [pair for row in zip(*columns, strict=True) for pair in row][:count]
    random.shuffle(rows)
    return examples("topics", ({"text": text, "label": group} for group, text in rows))


def _flat(part: str) -> str:
    return " ".join(part.split())


def _is_prose(part: str) -> bool:
    """Long enough, mostly letters, and neither code nor a session with the prompt."""
    letters = sum(character.isalpha() or character.isspace() for character in part)
    return len(_flat(part)) >= SHORTEST and letters > 0.85 * len(part) and not re.search(r">>>|^ *\w+ = ", part, re.M)


SAMPLES = (
    Sample("docs", "Python's documentation as running text, line by line", ("language", "pretrain"), make, 24_000),
    Sample("topics", "paragraphs of Python's documentation and what they are about", ("label",), make_topics, 1_800),
)
