"""CoNLL: a word a line with its columns, an empty line after each sentence; the tag stands last."""

from collections import Counter
from collections.abc import Iterator

from saccade.data.read.record import Ask, Record, plain_name
from saccade.data.read.source import Numbered, Source, lines
from saccade.data.read.tags import SPLIT
from saccade.data.read.values import MAX_WORD, Place, too_long
from saccade.errors import DataError


def looks(source: Source, ask: Ask) -> bool:
    """Words are asked for, and most lines have equally many columns, or end in a tag, or are one word."""
    if not ask.has("words") or source.suffix in (".csv", ".json", ".jsonl"):
        return False
    sample = [line for line in source.sample() if line.strip()]
    if source.suffix in (".conll", ".iob", ".bio", ".conllu", ".iob2", ".bioes"):
        return True
    separator = _separator(sample)
    width, count = _width(sample, separator)
    if any(len(line) > 200 for line in sample) or count < 0.8 * len(sample):
        return False
    if width == 1:
        return not ask.has("tags") and any(not line.strip() for line in source.sample())
    if sum(" " in line.split(separator)[0].strip() for line in sample) > 0.1 * len(sample):
        return False  # texts, not words
    ends = [line.split()[-1] for line in sample]
    return ask.has("tags") or sum(end == "O" or bool(SPLIT.fullmatch(end)) for end in ends) > 0.8 * len(ends)


def conll(source: Source, ask: Ask) -> Iterator[Record | DataError]:
    """A record for each sentence, its fields named as the roles."""
    sample = [line for line in source.sample() if line.strip()]
    separator = _separator(sample)
    width, _ = _width(sample, separator)
    words, tags = ask.of("words")[0], (ask.of("tags") or [None])[0]
    places = {words.name: _place(source, ask, words.name, width, 1)}
    if tags is not None:
        if width < 2:
            what, cure = "one column where a word and its tag are needed", "write WORD, a tab, TAG on each line"
            raise DataError(what, file=source.path, line=1, column="2", value=sample[0], cure=cure)
        places[tags.name] = _place(source, ask, tags.name, width, width)
    shown = ", ".join(f"{name} in column {place}" for name, place in places.items())
    between = "a tab" if separator == "\t" else "spaces"
    ask.said.append(f"{source.path.name}: CoNLL, {width} columns with {between} between them; {shown}.")
    for sentence in _sentences(source):
        found = _read(source, sentence, separator, width, places)
        if found is not None:
            yield found


def _read(
    source: Source, sentence: list[Numbered], separator: str | None, width: int, places: dict[str, int]
) -> Record | DataError | None:
    rows: list[list[str]] = []
    start = 0
    for line, text in sentence:
        if isinstance(text, DataError):
            return text
        cells = [cell.strip() for cell in text.rstrip("\n").split(separator)]
        if text.startswith("-DOCSTART-") or (text.startswith("#") and len(cells) != width):
            continue  # a mark between documents, a comment
        if line == 1 and plain_name(cells[0]) in ("word", "words", "token", "tokens", "form"):
            continue  # a header
        start = start or line
        if len(cells) != width:
            what = f"{len(cells)} columns where {width} are needed"
            cure = "write the same columns on every line, and an empty line after each sentence"
            column = str(min(len(cells), width) + (len(cells) > width))
            return DataError(what, file=source.path, line=line, column=column, value=text.rstrip("\n"), cure=cure)
        if not all(cells[place - 1] for place in places.values()):
            name, place = next((name, place) for name, place in places.items() if not cells[place - 1])
            cure = f"write a {'tag, such as O,' if name == 'tags' else 'word'} there"
            return DataError(
                f"nothing in the column of {name}", file=source.path, line=line, column=str(place), value="", cure=cure
            )
        name, place = next(iter(places.items()))  # the words
        if len(cells[place - 1]) > MAX_WORD:
            return too_long(cells[place - 1], Place(source.path, line, str(place)))
        rows.append(cells)
    if not rows:
        return None
    return Record(start, {name: [cells[place - 1] for cells in rows] for name, place in places.items()})


def _sentences(source: Source) -> Iterator[list[Numbered]]:
    sentence: list[Numbered] = []
    for line, text in lines(source):
        if isinstance(text, str) and not text.strip():
            if sentence:
                yield sentence
            sentence = []
        else:
            sentence.append((line, text))
        if len(sentence) > 100_000:
            cure = "put an empty line after each sentence"
            raise DataError(
                "100,000 lines without an empty one", file=source.path, line=line, value=str(text)[:40], cure=cure
            )
    if sentence:
        yield sentence


def _place(source: Source, ask: Ask, name: str, width: int, otherwise: int) -> int:
    given = ask.columns.get(name)
    if given is None:
        return otherwise
    if not given.isdecimal() or not 1 <= int(given) <= width:
        cure = f"CoNLL columns have numbers: --columns {name}={otherwise}"
        raise DataError(
            f"there is no such column; there are 1 to {width}", file=source.path, column=name, value=given, cure=cure
        )
    return int(given)


def _separator(sample: list[str]) -> str | None:
    """A tab if most lines have one, otherwise runs of spaces."""
    return "\t" if sum("\t" in line for line in sample) > len(sample) / 2 else None


def _width(sample: list[str], separator: str | None) -> tuple[int, int]:
    widths = Counter(len(line.rstrip("\n").split(separator)) for line in sample)
    return widths.most_common(1)[0] if widths else (0, 0)
