"""CoNLL: a word a line with its columns, an empty line after each sentence; the tag stands last."""

from collections import Counter
from collections.abc import Iterator

from saccade.data.read.base import ReadRequest, Record, normalize_column_name
from saccade.data.read.open_text import NumberedLine, SourceFile, read_lines
from saccade.data.read.parse_values import MAX_WORD_CHARACTERS, Location, make_word_error
from saccade.data.read.tag_schemes import PREFIXED_TAG
from saccade.errors import DataError


def matches(source: SourceFile, request: ReadRequest) -> bool:
    """Words are asked for, and most lines have equally many columns, or end in a tag, or are one word."""
    if not request.has_kind("words") or source.suffix in (".csv", ".json", ".jsonl"):
        return False
    sample = [line for line in source.sample_lines() if line.strip()]
    if source.suffix in (".conll", ".iob", ".bio", ".conllu", ".iob2", ".bioes"):
        return True
    separator = _guess_separator(sample)
    width, count = _find_common_width(sample, separator)
    if any(len(line) > 200 for line in sample) or count < 0.8 * len(sample):
        return False
    if width == 1:
        return not request.has_kind("tags") and any(not line.strip() for line in source.sample_lines())
    if sum(" " in line.split(separator)[0].strip() for line in sample) > 0.1 * len(sample):
        return False  # texts, not words
    ends = [line.split()[-1] for line in sample]
    return request.has_kind("tags") or sum(end == "O" or bool(PREFIXED_TAG.fullmatch(end)) for end in ends) > 0.8 * len(
        ends
    )


def read_conll(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    """A record for each sentence, its fields named as the roles."""
    sample = [line for line in source.sample_lines() if line.strip()]
    separator = _guess_separator(sample)
    width, _ = _find_common_width(sample, separator)
    words, tags = request.find_roles("words")[0], (request.find_roles("tags") or [None])[0]
    places = {words.name: _resolve_column_number(source, request, words.name, width, 1)}
    if tags is not None:
        if width < 2:
            what, hint = "one column where a word and its tag are needed", "write WORD, a tab, TAG on each line"
            raise DataError(what, file=source.path, line=1, column="2", value=sample[0], hint=hint)
        places[tags.name] = _resolve_column_number(source, request, tags.name, width, width)
    shown = ", ".join(f"{name} in column {place}" for name, place in places.items())
    between = "a tab" if separator == "\t" else "spaces"
    request.notes.append(f"{source.path.name}: CoNLL, {width} columns with {between} between them; {shown}.")
    for sentence in _split_sentences(source):
        found = _parse_sentence(source, sentence, separator, width, places)
        if found is not None:
            yield found


def _parse_sentence(
    source: SourceFile, sentence: list[NumberedLine], separator: str | None, width: int, role_columns: dict[str, int]
) -> Record | DataError | None:
    rows: list[list[str]] = []
    start = 0
    for line, text in sentence:
        if isinstance(text, DataError):
            return text
        cells = [cell.strip() for cell in text.rstrip("\n").split(separator)]
        if text.startswith("-DOCSTART-") or (text.startswith("#") and len(cells) != width):
            continue  # a mark between documents, a comment
        if line == 1 and normalize_column_name(cells[0]) in ("word", "words", "token", "tokens", "form"):
            continue  # a header
        start = start or line
        if len(cells) != width:
            what = f"{len(cells)} columns where {width} are needed"
            hint = "write the same columns on every line, and an empty line after each sentence"
            column = str(min(len(cells), width) + (len(cells) > width))
            return DataError(what, file=source.path, line=line, column=column, value=text.rstrip("\n"), hint=hint)
        if not all(cells[place - 1] for place in role_columns.values()):
            name, place = next((name, place) for name, place in role_columns.items() if not cells[place - 1])
            hint = f"write a {'tag, such as O,' if name == 'tags' else 'word'} there"
            return DataError(
                f"nothing in the column of {name}", file=source.path, line=line, column=str(place), value="", hint=hint
            )
        name, place = next(iter(role_columns.items()))  # the words
        if len(cells[place - 1]) > MAX_WORD_CHARACTERS:
            return make_word_error(cells[place - 1], Location(source.path, line, str(place)))
        rows.append(cells)
    if not rows:
        return None
    return Record(start, {name: [cells[place - 1] for cells in rows] for name, place in role_columns.items()})


def _split_sentences(source: SourceFile) -> Iterator[list[NumberedLine]]:
    sentence: list[NumberedLine] = []
    for line, text in read_lines(source):
        if isinstance(text, str) and not text.strip():
            if sentence:
                yield sentence
            sentence = []
        else:
            sentence.append((line, text))
        if len(sentence) > 100_000:
            hint = "put an empty line after each sentence"
            raise DataError(
                "100,000 lines without an empty one", file=source.path, line=line, value=str(text)[:40], hint=hint
            )
    if sentence:
        yield sentence


def _resolve_column_number(source: SourceFile, request: ReadRequest, name: str, width: int, default: int) -> int:
    given = request.columns.get(name)
    if given is None:
        return default
    if not given.isdecimal() or not 1 <= int(given) <= width:
        hint = f"CoNLL columns have numbers: --columns {name}={default}"
        raise DataError(
            f"there is no such column; there are 1 to {width}", file=source.path, column=name, value=given, hint=hint
        )
    return int(given)


def _guess_separator(sample_lines: list[str]) -> str | None:
    """A tab if most lines have one, otherwise runs of spaces."""
    return "\t" if sum("\t" in line for line in sample_lines) > len(sample_lines) / 2 else None


def _find_common_width(sample_lines: list[str], separator: str | None) -> tuple[int, int]:
    widths = Counter(len(line.rstrip("\n").split(separator)) for line in sample_lines)
    return widths.most_common(1)[0] if widths else (0, 0)
