"""File formats, in the order in which they are tried; the content decides, the suffix only between similar formats."""

from functools import partial

from saccade.data.read import abc_notation, conll, csv_tsv, fasta, idx, json_files, midi, parquet, plain_text
from saccade.data.read.base import TEXT_KINDS, Format, ReadRequest
from saccade.data.read.open_text import SourceFile
from saccade.data.read.refuse_binary import refuse_binary
from saccade.data.read.speech import librispeech
from saccade.errors import DataError

DELIMITERS_BY_SUFFIX = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
DELIMITERS = "\t,;|"  # in the order in which they are tried
MIN_CONSISTENT_FRACTION = 0.9  # of the lines have the same number of cells; one bad row does not change the format


def _matches_delimited(delimiter: str, source: SourceFile, request: ReadRequest) -> bool:
    """Whether most rows have the same number of cells with this delimiter; the suffix decides in doubt."""
    own = DELIMITERS_BY_SUFFIX.get(source.suffix)
    sample = source.sample_lines()
    if own is None and all(role.kind == "line" for role in request.roles):
        return False  # running text may contain tabs and commas
    if own is not None:
        return delimiter == _choose_delimiter(sample, own)
    if csv_tsv.measure_consistency(sample, delimiter) < MIN_CONSISTENT_FRACTION:
        return False
    return delimiter == "\t" or len(request.roles) > 1 or _has_known_column(sample[0], delimiter, request)


def _choose_delimiter(sample_lines: list[str], suffix_delimiter: str) -> str:
    """The delimiter of the suffix, unless rows are inconsistent with it and consistent with another one.

    Texts often contain commas and hardly ever tabs: a comma is overruled by a delimiter that splits every line into the same
    number of cells, a tab only if the file has none.
    """
    occurs = any(suffix_delimiter in line for line in sample_lines)
    if (suffix_delimiter == "\t" and occurs) or csv_tsv.measure_consistency(sample_lines, suffix_delimiter) == 1.0:
        return suffix_delimiter
    minimum = 1.0 if occurs else MIN_CONSISTENT_FRACTION
    others = (delimiter for delimiter in DELIMITERS if delimiter != suffix_delimiter)
    consistent = (delimiter for delimiter in others if csv_tsv.measure_consistency(sample_lines, delimiter) >= minimum)
    return next(consistent, suffix_delimiter)


def _has_known_column(line: str, delimiter: str, request: ReadRequest) -> bool:
    """Whether the first line contains a known column name, which prose with commas does not."""
    return bool(request.collect_column_names() & {cell.strip().lower() for cell in line.split(delimiter)})


def _matches_anything(source: SourceFile, request: ReadRequest) -> bool:
    return True


FORMATS = [
    Format("Parquet", parquet.matches_parquet, parquet.read_parquet, has_preview=False),
    Format("Arrow", parquet.matches_arrow, parquet.read_arrow, has_preview=False),
    Format("idx", idx.matches, idx.read_idx, has_columns=False, has_preview=False),
    Format("MIDI", midi.matches, midi.read_midi, has_columns=False, has_preview=False),
    Format("piano rolls", midi.matches_piano_rolls, midi.read_piano_rolls, has_columns=False, has_preview=False),
    Format("LibriSpeech", librispeech.matches, librispeech.read_transcripts),
    Format("FASTA", fasta.matches, fasta.read_fasta, has_columns=False),
    Format("ABC", abc_notation.matches, abc_notation.read_abc, has_columns=False),
    Format("JSON lines", json_files.matches_json_lines, json_files.read_json_lines),
    Format("JSON", json_files.matches_json, json_files.read_json),
    Format("CoNLL", conll.matches, conll.read_conll, has_columns=False),
    Format("TSV", partial(_matches_delimited, "\t"), csv_tsv.read_tsv),
    Format("CSV", partial(_matches_delimited, ","), partial(csv_tsv.read_csv, ",")),
    Format("CSV with ;", partial(_matches_delimited, ";"), partial(csv_tsv.read_csv, ";")),
    Format("CSV with |", partial(_matches_delimited, "|"), partial(csv_tsv.read_csv, "|")),
    Format("plain text", _matches_anything, plain_text.read_plain_text, has_columns=False),
]
BINARY_FORMATS = ("Parquet", "Arrow", "idx", "MIDI")


def find_format(source: SourceFile, request: ReadRequest) -> Format:
    """The first format that matches the content; raises DataError for files that are neither text nor a known binary format."""
    for form in FORMATS[: len(BINARY_FORMATS)]:
        if form.matches(source, request):
            return form
    refuse_binary(source.path, source.head)
    return next(form for form in FORMATS[len(BINARY_FORMATS) :] if form.matches(source, request))


def is_plain_text(source: SourceFile) -> bool:
    """Whether a file is neither a table nor JSON, so that it may be one of two aligned files."""
    if source.suffix in (*DELIMITERS_BY_SUFFIX, ".json", ".jsonl", ".conll"):
        return False
    try:
        return find_format(source, ReadRequest(())).name == "plain text"
    except DataError:
        return False


__all__ = ["FORMATS", "TEXT_KINDS", "find_format", "is_plain_text"]
