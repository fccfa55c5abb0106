"""The formats of single files, in the order in which they are tried; the content decides, the name only between two."""

from functools import partial

from saccade.data.read import abc, arrow, cells, conll, fasta, idx, lines, midi, objects
from saccade.data.read.binary import refuse_binary
from saccade.data.read.record import TEXTUAL, Ask, Format
from saccade.data.read.source import Source
from saccade.errors import DataError

TABLES = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
MARKS = "\t,;|"  # between cells, in the order in which they are tried
MOSTLY = 0.9  # of the lines, so that one bad row does not change the format


def _delimited(delimiter: str, source: Source, ask: Ask) -> bool:
    """Cut by this delimiter, most rows have equally many cells; the name decides where there is one cell, or two choices."""
    own = TABLES.get(source.suffix)
    sample = source.sample()
    if own is None and all(role.kind == "line" for role in ask.roles):
        return False  # running text may have tabs and commas
    if own is not None:
        return delimiter == _mark(sample, own)
    if cells.evenness(sample, delimiter) < MOSTLY:
        return False
    return delimiter == "\t" or len(ask.roles) > 1 or _named(sample[0], delimiter, ask)


def _mark(sample: list[str], own: str) -> str:
    """What stands between the cells: what the name says, unless that cuts them unevenly and another mark does not.

    Texts have commas and hardly ever tabs, so a comma is overruled by what cuts every line alike; a tab only where there is none.
    """
    there = any(own in line for line in sample)
    if (own == "\t" and there) or cells.evenness(sample, own) == 1.0:
        return own
    least = 1.0 if there else MOSTLY
    return next((mark for mark in MARKS if mark != own and cells.evenness(sample, mark) >= least), own)


def _named(line: str, delimiter: str, ask: Ask) -> bool:
    """The first line has a column name that is asked for: prose with commas has not."""
    return bool(ask.names() & {cell.strip().lower() for cell in line.split(delimiter)})


def _anything(source: Source, ask: Ask) -> bool:
    return True


FORMATS = [
    Format("Parquet", arrow.looks_like_parquet, arrow.parquet),
    Format("Arrow", arrow.looks, arrow.arrow),
    Format("idx", idx.looks, idx.idx, columns=False),
    Format("MIDI", midi.looks, midi.midi, columns=False),
    Format("piano rolls", midi.looks_like_rolls, midi.rolls, columns=False),
    Format("FASTA", fasta.looks, fasta.fasta, columns=False),
    Format("ABC", abc.looks, abc.abc, columns=False),
    Format("JSON lines", objects.looks_like_lines, objects.json_lines),
    Format("JSON", objects.looks_whole, objects.json_whole),
    Format("CoNLL", conll.looks, conll.conll, columns=False),
    Format("TSV", partial(_delimited, "\t"), cells.tsv),
    Format("CSV", partial(_delimited, ","), partial(cells.csv_with, ",")),
    Format("CSV with ;", partial(_delimited, ";"), partial(cells.csv_with, ";")),
    Format("CSV with |", partial(_delimited, "|"), partial(cells.csv_with, "|")),
    Format("plain text", _anything, lines.plain, columns=False),
]
BINARY = ("Parquet", "Arrow", "idx", "MIDI")


def find_format(source: Source, ask: Ask) -> Format:
    """The first format that the content looks like; a file that is no text is refused by name."""
    for form in FORMATS[: len(BINARY)]:
        if form.looks(source, ask):
            return form
    refuse_binary(source.path, source.head)
    return next(form for form in FORMATS[len(BINARY) :] if form.looks(source, ask))


def is_plain(source: Source) -> bool:
    """Neither a table nor JSON: half of a pair of aligned files may be it."""
    if source.suffix in (*TABLES, ".json", ".jsonl", ".conll"):
        return False
    try:
        return find_format(source, Ask(())).name == "plain text"
    except DataError:
        return False


__all__ = ["FORMATS", "TEXTUAL", "find_format", "is_plain"]
