"""Reading what strangers wrote: regular files of bounded size, and errors that name the file."""

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
MAX_VOCAB = 500_000  # the largest vocabulary of our families has 262,000
MAX_ERROR_CHARACTERS = 600  # characters of an error that another library gives
MAX_TOML_DEPTH = 16  # tables in tables; those of a run are three deep
TOML_STRING_OR_COMMENT = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*', re.DOTALL
)
DOTTED_KEY = re.compile(rf"(?<![\w\"-])[\w\"-]++(?:[ \t]*+\.[ \t]*+[\w\"-]++){{{MAX_TOML_DEPTH}}}")


def resolve_inside(path: Path, directory: Path) -> Path:
    """Where a path leads, if that is in `directory` (or in its own hub cache)."""
    real_home = directory.resolve()
    if real_home.parent.name == "snapshots":  # a hub cache keeps the files beside its snapshots and links to them
        real_home = real_home.parent.parent
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise ModelError(f"{path}: cannot be read ({said[:MAX_ERROR_CHARACTERS]}).") from error
    if not real.is_relative_to(real_home):
        raise ModelError(f"{path}: leads out of the model directory, to {real}; copy the file there if you trust it.")
    return real


def read_bytes(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of a regular file that is not larger than `max_bytes`."""
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise ModelError(f"{path} is not a regular file; a tokenizer is read from regular files only.")
        if info.st_size > max_bytes:
            raise ModelError(
                f"{path} has {info.st_size:,} bytes; a tokenizer file may have {max_bytes:,}. Is it the right file?"
            )
        with path.open("rb") as file:
            return file.read(max_bytes)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from None


def read_text(path: Path) -> str:
    """The characters of a UTF-8 file."""
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}.") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if there is no such file."""
    if not path.exists():
        return {}
    text = read_text(path)
    found = parse_json(text, str(path))
    if not isinstance(found, dict):
        raise ModelError(f"{path} holds a {type(found).__name__}; a JSON object is needed.")
    if re.search(r"\\u[dD][89a-fA-F]", text):  # half a character can be written in JSON, and nowhere else
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            raise ModelError(f"{path} has half a character, {half!r}; it is not valid text.") from None
    return found


def parse_json(text: str, where: str) -> Any:
    """The value that JSON stands for; two readers could take a key that comes twice for two things, so it is refused."""
    try:
        return json.loads(text, object_pairs_hook=_refuse_duplicate_keys)
    except json.JSONDecodeError as error:
        raise ModelError(f"{where}:{error.lineno}:{error.colno}: not JSON: {error.msg}.") from None
    except RecursionError:
        raise ModelError(f"{where}: JSON nested too deeply to be read.") from None
    except ValueError as error:  # a key twice, or a number of thousands of digits
        raise ModelError(f"{where}: {error}.") from None


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The tables of a TOML document, not nested deeper than `MAX_TOML_DEPTH`.

    The parser needs memory quadratic in the parts of a dotted key, so a long one is refused before it is parsed.

    >>> parse_toml('a.b = "x.y"', "a.toml")
    {'a': {'b': 'x.y'}}
    """
    too_deep = f"{where}: TOML nested too deeply to be read; at most {MAX_TOML_DEPTH} levels are."
    if DOTTED_KEY.search(TOML_STRING_OR_COMMENT.sub('"', text)):
        raise ModelError(too_deep)
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise ModelError(too_deep) from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
        at = f"{place[1]}:{place[2]}" if place else text.count("\n") + 1  # else at the end of the document
        what = str(error).removesuffix(place[0]) if place else str(error)
        raise ModelError(f"{where}:{at}: not TOML: {escape_unprintable(what[:MAX_ERROR_CHARACTERS])}.") from None
    except ValueError as error:  # a number of thousands of digits
        raise ModelError(f"{where}: {error}.") from None
    level: list[Any] = [found]
    for _ in range(MAX_TOML_DEPTH):
        inner = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for some in inner for one in some if isinstance(one, dict | list)]
    if level:
        raise ModelError(too_deep)
    return found


def _refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ModelError(f"the key {abbreviate(twice)} comes twice")
    return made


def abbreviate(value: Any, max_characters: int = 60) -> str:
    """A stranger's value as an error shows it: short, and without characters that a terminal would act on.

    >>> abbreviate("a" * 100), abbreviate(chr(27) + "[2J")
    ("'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'...", "'\\\\x1b[2J'")
    """
    if isinstance(value, str):
        return repr(value[:max_characters]) + ("..." if len(value) > max_characters else "")
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, or lists in lists without end
        return f"a {type(value).__name__} too large to show"
    return text[:max_characters] + ("..." if len(text) > max_characters else "")


def escape_unprintable(text: str) -> str:
    """A stranger's text with every character that a terminal would act on written as its escape; a newline as \\\\n too.

    >>> escape_unprintable("a" + chr(27) + "[2J b")
    'a\\\\x1b[2J b'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


@contextmanager
def as_model_error(action: str) -> Iterator[None]:
    """Turn whatever the libraries raise into one ValueError that says what was being done.

    A panic in `tokenizers` derives from BaseException, so a plain `except Exception` would let it through.
    """
    try:
        yield
    except MemoryError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            said = str(error).strip() or type(error).__name__
            said = escape_unprintable(said[:MAX_ERROR_CHARACTERS])
            raise ModelError(said if said.startswith(action) else f"{action}: {said}") from error
        raise
