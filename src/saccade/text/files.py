"""Reading what strangers wrote: regular files of bounded size, and errors that name the file."""

import json
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BYTES = 64 << 20  # the largest published tokenizer.json is about half of this
TOKENS = 500_000  # the largest vocabulary of our families has 262,000
ADDED = 100_000
MERGES = 1_000_000  # the largest published list has about 580,000
PATTERN = 2_000  # characters of a regular expression; GPT-4's has about 150
WORD = 1_000  # WordPiece takes quadratic time in the length of a word
ENTRIES = 1_000  # of any list outside the vocabulary
GROWTH = 64  # how many times longer the replacements may make a text; published ones write one or two characters


def read(path: Path, limit: int = BYTES) -> bytes:
    """The bytes of a regular file that is not larger than `limit`."""
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise ValueError(f"{path} is not a regular file; a tokenizer is read from regular files only.")
        if info.st_size > limit:
            raise ValueError(
                f"{path} has {info.st_size:,} bytes; a tokenizer file may have {limit:,}. Is it the right file?"
            )
        with path.open("rb") as file:
            return file.read(limit)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}.") from None


def read_text(path: Path) -> str:
    """The characters of a UTF-8 file."""
    try:
        return read(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}.") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if there is no such file."""
    if not path.exists():
        return {}
    try:
        text = read_text(path)
        found = json.loads(text)
        if re.search(r"\\u[dD][89a-fA-F]", text):  # half a character can be written in JSON, and nowhere else
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{path} has half a character, {error.object[error.start]!r}; it is not valid text.") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}.") from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply to be a tokenizer.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}; a JSON object is needed.")
    return found


@contextmanager
def guarded(doing: str) -> Iterator[None]:
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
            raise ValueError(f"{doing}: {said}") from error
        raise


def check_spec(spec: dict[str, Any], where: str) -> None:
    """Refuse a tokenizer.json that would cost more than any real one: too many entries, or a pattern that can hang."""
    model = spec.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise ValueError(f"{where} has no model with a vocabulary; is it a tokenizer.json?")
    merges = model.get("merges") or []
    if not isinstance(merges, list):
        raise ValueError(f"{where}: merges is a {type(merges).__name__}; a list of pairs is needed.")
    if len(merges) > MERGES:
        raise ValueError(f"{where} has {len(merges):,} merges; at most {MERGES:,} are read.")
    added = spec.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(x, dict) and isinstance(x.get("content"), str) for x in added):
        raise ValueError(f"{where}: added_tokens is not a list of tokens with a content.")
    for count, most, what in ((len(model["vocab"]), TOKENS, "tokens"), (len(added), ADDED, "added tokens")):
        if count > most:
            raise ValueError(f"{where} has {count:,} {what}; at most {most:,} are read.")
    check_vocab(model["vocab"], where)
    word = model.get("max_input_chars_per_word", 100)
    if not isinstance(word, int) or word > WORD:
        raise ValueError(
            f"{where}: max_input_chars_per_word is {word!r}; at most {WORD} is read, for the time is quadratic."
        )
    _check_parts([spec.get(part) for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder")], where)


def check_vocab(vocab: dict | list, where: str) -> None:
    """Refuse a vocabulary that is not tokens with ids, or (Unigram) tokens with scores."""
    if not vocab:
        raise ValueError(f"{where}: the vocabulary is empty.")
    if isinstance(vocab, dict):
        for token, id in vocab.items():
            if type(id) is not int or not 0 <= id < 10 * TOKENS:
                raise ValueError(f"{where}: the token {token[:40]!r} has the id {id!r}; a number from 0 is needed.")
    else:
        for i, entry in enumerate(vocab):
            if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
                raise ValueError(f"{where}: entry {i} of the vocabulary is not a pair of a token and a score.")


def _check_parts(parts: list[Any], where: str) -> None:
    """The parts around the model: short lists, patterns that end, replacements that do not blow a text up."""
    growth, open_nodes = 1, parts
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, list | dict) and len(node) > ENTRIES:
            raise ValueError(
                f"{where} has a list of {len(node):,} entries outside the vocabulary; at most {ENTRIES:,} are read."
            )
        if isinstance(node, dict):
            open_nodes += node.values()
            if isinstance(node.get("Regex"), str):
                check_pattern(node["Regex"], where)
            for key in ("content", "prepend"):
                growth *= max(1, len(node[key])) if isinstance(node.get(key), str) else 1
        elif isinstance(node, list):
            open_nodes += node
    if growth > GROWTH:
        raise ValueError(f"{where} can make a text {growth:,} times longer; at most {GROWTH} times is read.")


def check_pattern(pattern: str, where: str) -> None:
    """Refuse a regular expression whose cost can explode: repeats within repeats, and huge counts.

    >>> check_pattern(r"'s|'t| ?\\p{L}+|\\p{N}{1,3}|\\s+(?!\\S)|\\s+", "a.json")
    >>> check_pattern("(a+)+$", "a.json")
    Traceback (most recent call last):
    ValueError: a.json: the pattern '(a+)+$' repeats a repetition, which can take for ever; such files are not read.
    """
    if len(pattern) > PATTERN:
        raise ValueError(f"{where} has a pattern of {len(pattern):,} characters; at most {PATTERN:,} are read.")
    bare = re.sub(r"\\[pP]\{[^}]*\}|\\.", "x", pattern, flags=re.DOTALL)
    bare = re.sub(r"\[(?:[^\[\]]|\[[^\]]*\])*\]", "x", bare)  # a class counts as a letter
    counts = 1
    for most in re.findall(r"\{(?:\d*,)?(\d+)\}", bare):
        counts *= max(1, int(most[:9]))
    if counts > 10_000:
        raise ValueError(f"{where}: the pattern {pattern[:60]!r} counts up to {counts:,}; such files are not read.")
    if _nested(bare):
        raise ValueError(
            f"{where}: the pattern {pattern[:60]!r} repeats a repetition, which can take for ever; such files are not read."
        )


def _nested(bare: str) -> bool:
    """Whether an unbounded repeat applies to a group that itself contains one."""
    inside = [False]  # for each open group: does it contain an unbounded repeat?
    closed = False  # what the group just closed contained
    for i, letter in enumerate(bare):
        if letter == "(":
            inside.append(False)
            closed = False
        elif letter == ")":
            closed = inside.pop() if len(inside) > 1 else False
            inside[-1] |= closed
        elif letter in "+*" or (letter == "{" and re.match(r"\{\d*,\}", bare[i:])):
            if closed:
                return True
            inside[-1] = True
        elif letter not in "?":
            closed = False
    return False
