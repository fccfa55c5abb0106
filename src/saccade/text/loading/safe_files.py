"""Reads untrusted files: regular files of limited size, JSON and TOML of limited depth, with errors that name the file."""

import json
import re
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from saccade.errors import ModelError

MAX_FILE_BYTES = 64 << 20  # the largest published tokenizer.json is about half of this
MAX_VOCAB = 500_000  # the largest vocabulary of a supported family has 262,000
MAX_ERROR_CHARACTERS = 600  # that are shown of another library's error message
MAX_TOML_DEPTH = 16  # nesting of tables; the config of a run has three levels
TOML_STRING_OR_COMMENT = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*', re.DOTALL
)
DOTTED_KEY = re.compile(rf"(?<![\w\"-])[\w\"-]++(?:[ \t]*+\.[ \t]*+[\w\"-]++){{{MAX_TOML_DEPTH}}}")


def resolve_inside(path: Path, directory: Path) -> Path:
    """Resolve a path; raises ModelError if it leads out of `directory` (or its hub cache)."""
    real_home = directory.resolve()
    if real_home.parent.name == "snapshots":  # in a hub cache, files are links to blobs beside the snapshots
        real_home = real_home.parent.parent
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelError(f"{path}: cannot be read ({reason[:MAX_ERROR_CHARACTERS]}).") from error
    if not real.is_relative_to(real_home):
        raise ModelError(f"{path}: leads out of the model directory, to {real}; copy the file into it if you trust it.")
    return real


def read_bytes(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Read a regular file of at most `max_bytes`."""
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise ModelError(f"{path} is not a regular file; tokenizer files must be.")
        if info.st_size > max_bytes:
            raise ModelError(f"{path} has {info.st_size:,} bytes; the maximum is {max_bytes:,}. Is it the right file?")
        with path.open("rb") as file:
            return file.read(max_bytes)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from None


def read_text(path: Path) -> str:
    """Read a UTF-8 file."""
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}.") from None


def read_json(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file; an empty one if the file does not exist."""
    if not path.exists():
        return {}
    text = read_text(path)
    value = parse_json(text, str(path))
    if not isinstance(value, dict):
        raise ModelError(f"{path} contains a {type(value).__name__}; a JSON object is needed.")
    if re.search(r"\\u[dD][89a-fA-F]", text):  # JSON can contain a lone surrogate, UTF-8 cannot
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            surrogate = error.object[error.start]
            raise ModelError(
                f"{path} has a lone surrogate ({surrogate!r}, half a character); it is not valid text."
            ) from None
    return value


def parse_json(text: str, where: str) -> Any:
    """Parse JSON; duplicate keys are errors, since parsers disagree on which value counts."""
    try:
        return json.loads(text, object_pairs_hook=_refuse_duplicate_keys)
    except json.JSONDecodeError as error:
        raise ModelError(f"{where}:{error.lineno}:{error.colno}: not JSON: {error.msg}.") from None
    except RecursionError:
        raise ModelError(f"{where}: JSON nested too deeply.") from None
    except ValueError as error:  # a duplicate key, or a number of thousands of digits
        raise ModelError(f"{where}: {error}.") from None


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Parse TOML with at most `MAX_TOML_DEPTH` levels of nesting.

    The parser needs memory quadratic in the length of a dotted key, so long ones are rejected before parsing.

    >>> parse_toml('a.b = "x.y"', "a.toml")
    {'a': {'b': 'x.y'}}
    """
    too_deep = f"{where}: TOML nested too deeply; at most {MAX_TOML_DEPTH} levels are supported."
    if DOTTED_KEY.search(TOML_STRING_OR_COMMENT.sub('"', text)):
        raise ModelError(too_deep)
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise ModelError(too_deep) from None
    except tomllib.TOMLDecodeError as error:
        match = re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
        position = f"{match[1]}:{match[2]}" if match else text.count("\n") + 1  # without one, the end of the document
        reason = str(error).removesuffix(match[0]) if match else str(error)
        raise ModelError(
            f"{where}:{position}: not TOML: {escape_unprintable(reason[:MAX_ERROR_CHARACTERS])}."
        ) from None
    except ValueError as error:  # a number of thousands of digits
        raise ModelError(f"{where}: {error}.") from None
    level: list[Any] = [tables]
    for _ in range(MAX_TOML_DEPTH):
        children = [node.values() if isinstance(node, dict) else node for node in level]
        level = [child for values in children for child in values if isinstance(child, dict | list)]
    if level:
        raise ModelError(too_deep)
    return tables


def _refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        duplicate = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ModelError(f"the key {abbreviate(duplicate)} occurs twice")
    return table


def abbreviate(value: Any, max_characters: int = 60) -> str:
    """An untrusted value for an error message: shortened, and without control characters.

    >>> abbreviate("a" * 100), abbreviate(chr(27) + "[2J")
    ("'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'...", "'\\\\x1b[2J'")
    """
    if isinstance(value, str):
        return repr(value[:max_characters]) + ("..." if len(value) > max_characters else "")
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, or endless nesting
        return f"a {type(value).__name__} too large to show"
    return text[:max_characters] + ("..." if len(text) > max_characters else "")


def escape_unprintable(text: str) -> str:
    """Untrusted text with all unprintable characters escaped, newlines included.

    >>> escape_unprintable("a" + chr(27) + "[2J b")
    'a\\\\x1b[2J b'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


@contextmanager
def as_model_error(action: str) -> Iterator[None]:
    """Context manager that turns any error of a library into a ModelError starting with `action`.

    Includes panics of `tokenizers`, which derive from BaseException.
    """
    try:
        yield
    except MemoryError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            message = str(error).strip() or type(error).__name__
            message = escape_unprintable(message[:MAX_ERROR_CHARACTERS])
            raise ModelError(message if message.startswith(action) else f"{action}: {message}") from error
        raise
