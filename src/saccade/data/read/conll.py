"""CoNLL files: one word per line with its columns, the tag in the last one, and an empty line after each sentence."""

from collections import Counter
from collections.abc import Iterator

from saccade.data.read.base import ReadRequest, Record, normalize_column_name
from saccade.data.read.open_text import NumberedLine, SourceFile, read_lines
from saccade.data.read.parse_values import MAX_WORD_CHARACTERS, Location, make_word_error
from saccade.data.read.tag_schemes import PREFIXED_TAG
from saccade.errors import DataError


def matches(source: SourceFile, request: ReadRequest) -> bool:
    """Whether words are requested, and most lines have the same number of columns, end in a tag, or are a single word."""
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
        return False  # the first column holds texts, not words
    ends = [line.split()[-1] for line in sample]
    return request.has_kind("tags") or sum(end == "O" or bool(PREFIXED_TAG.fullmatch(end)) for end in ends) > 0.8 * len(
        ends
    )


def read_conll(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    """A record for each sentence, with fields named by role."""
    sample = [line for line in source.sample_lines() if line.strip()]
    separator = _guess_separator(sample)
    width, _ = _find_common_width(sample, separator)
    words, tags = request.find_roles("words")[0], (request.find_roles("tags") or [None])[0]
    column_numbers = {words.name: _resolve_column_number(source, request, words.name, width, 1)}
    if tags is not None:
        if width < 2:
            what, hint = "one column where a word and its tag are needed", "write WORD, a tab, TAG on each line"
            raise DataError(what, file=source.path, line=1, column="2", value=sample[0], hint=hint)
        column_numbers[tags.name] = _resolve_column_number(source, request, tags.name, width, width)
    shown = ", ".join(f"{name} in column {place}" for name, place in column_numbers.items())
    separator_name = "a tab" if separator == "\t" else "spaces"
    request.notes.append(f"{source.path.name}: CoNLL, {width} columns with {separator_name} between them; {shown}.")
    for sentence in _split_sentences(source):
        record = _parse_sentence(source, sentence, separator, width, column_numbers)
        if record is not None:
            yield record


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
            continue  # a document separator or a comment
        if line == 1 and normalize_column_name(cells[0]) in ("word", "words", "token", "tokens", "form"):
            continue  # a header
        start = start or line
        if len(cells) != width:
            what = f"expected {width} columns, got {len(cells)}"
            hint = "write the same columns on every line, and an empty line after each sentence"
            column = str(min(len(cells), width) + (len(cells) > width))
            return DataError(what, file=source.path, line=line, column=column, value=text.rstrip("\n"), hint=hint)
        if not all(cells[number - 1] for number in role_columns.values()):
            name, number = next((name, number) for name, number in role_columns.items() if not cells[number - 1])
            hint = f"write a {'tag, such as O,' if name == 'tags' else 'word'} there"
            return DataError(
                f"nothing in the column of {name}", file=source.path, line=line, column=str(number), value="", hint=hint
            )
        name, number = next(iter(role_columns.items()))  # the words
        if len(cells[number - 1]) > MAX_WORD_CHARACTERS:
            return make_word_error(cells[number - 1], Location(source.path, line, str(number)))
        rows.append(cells)
    if not rows:
        return None
    return Record(start, {name: [cells[number - 1] for cells in rows] for name, number in role_columns.items()})


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
    column = request.columns.get(name)
    if column is None:
        return default
    if not column.isdecimal() or not 1 <= int(column) <= width:
        hint = f"CoNLL columns have numbers: --columns {name}={default}"
        raise DataError(
            f"there is no such column; there are 1 to {width}", file=source.path, column=name, value=column, hint=hint
        )
    return int(column)


def _guess_separator(sample_lines: list[str]) -> str | None:
    """A tab if most lines have one, otherwise None, which splits at runs of spaces."""
    return "\t" if sum("\t" in line for line in sample_lines) > len(sample_lines) / 2 else None


def _find_common_width(sample_lines: list[str], separator: str | None) -> tuple[int, int]:
    widths = Counter(len(line.rstrip("\n").split(separator)) for line in sample_lines)
    return widths.most_common(1)[0] if widths else (0, 0)
