"""Tag schemes: BIO, BIOES (and BILOU), IO and BIO1 are recognised and written as BIO; steps that BIO forbids are mended."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

from saccade.data.example import Example
from saccade.data.read.base import ReadRequest
from saccade.errors import DataError

MAX_SENTENCES_SAMPLED = 10_000  # sentences looked at to tell the scheme
PREFIXED_TAG = re.compile(r"([BIESLUM])-(.+)")
LOWERCASE_TAG = re.compile(r"[biesulm]-.|o$")


def detect_scheme(sentences: Iterable[Sequence[str]]) -> str:
    """bio, bioes, io, bio1, bare (a type without a prefix, and O) or none (not spans at all, such as parts of speech).

    >>> detect_scheme([["O", "I-PER", "I-PER", "B-PER"]]), detect_scheme([["B-PER", "E-PER", "S-LOC", "O"]]), detect_scheme([["NOUN", "VERB"]])
    ('bio1', 'bioes', 'none')
    """
    counts, opened, lone = Counter[str](), 0, 0
    for tags in sentences:
        before = "O"
        for tag in tags:
            counts[tag] += 1
            if tag.startswith("I-") and before[2:] != tag[2:]:
                opened += 1  # an I that opens a span
            if tag.startswith("B-") and (before == "O" or before[2:] != tag[2:]):
                lone += 1  # a B where BIO1 would have an I
            before = tag
    total, spans = sum(counts.values()), sum(count for tag, count in counts.items() if PREFIXED_TAG.fullmatch(tag))
    if spans + counts["O"] < 0.9 * total or not spans:
        others = [tag for tag in counts if tag != "O"]
        bare = counts["O"] > total / 2 and all(len(tag) > 1 for tag in others)
        return "bare" if bare and not spans and others else "none" if not counts["O"] or others else "bio"
    prefixes = {tag[0] for tag in counts if PREFIXED_TAG.fullmatch(tag)}
    if prefixes & set("ESLU"):
        return "bioes"
    if "B" not in prefixes:
        return "io"
    return "bio1" if opened and not lone else "bio"


def uppercase_prefix(tag: str) -> str:
    """A tag with its prefix, or its O, as a capital letter.

    >>> uppercase_prefix("b-per"), uppercase_prefix("o"), uppercase_prefix("noun")
    ('B-per', 'O', 'noun')
    """
    return tag[0].upper() + tag[1:] if LOWERCASE_TAG.match(tag) else tag


def find_invalid_tag(tags: Sequence[str], scheme: str) -> int | None:
    """The place of the first tag that the scheme does not have.

    >>> find_invalid_tag(["O", "B-PER", "PER"], "bio")
    2
    """
    if scheme in ("none", "bare"):
        return None
    return next((i for i, tag in enumerate(tags) if tag != "O" and not PREFIXED_TAG.fullmatch(tag)), None)


def to_bio(tags: Sequence[str], scheme: str) -> tuple[list[str], int]:
    """The tags of a sentence in BIO, and how many had to be mended; `misfit` has let them all pass.

    >>> to_bio(["O", "I-PER", "I-PER", "B-PER"], "bio1")
    (['O', 'B-PER', 'I-PER', 'B-PER'], 0)
    >>> to_bio(["O", "I-PER", "I-LOC"], "bio")
    (['O', 'B-PER', 'B-LOC'], 2)
    """
    if scheme == "none":
        return list(tags), 0
    out: list[str] = []
    mended, before, ended = 0, "", True  # the type of the span at hand; whether it is closed
    for tag in tags:
        if tag == "O":
            out.append("O")
            before, ended = "", True
            continue
        prefix, _, kind = tag.partition("-") if scheme != "bare" else ("I", "-", tag)
        opens = prefix in "BSU"
        fits = kind == before and not ended
        if not opens and not fits and scheme in ("bio", "bioes"):
            mended += 1
        out.append(f"{'B' if opens or not fits else 'I'}-{kind}")
        before, ended = kind, prefix in "ESLU"
    return out, mended


SCHEME_NAMES = {
    "bio1": "BIO1 (IOB1)",
    "bioes": "BIOES",
    "io": "IO",
    "bare": "types without a prefix",
    "bio": "BIO",
    "none": "not spans",
}


def convert_tags_to_bio(examples: Iterator[Example | DataError], request: ReadRequest) -> Iterator[Example | DataError]:
    """Recognise the tag scheme by the first sentences and write all tags in BIO."""
    name = request.find_roles("tags")[0].name
    first = list(islice(examples, MAX_SENTENCES_SAMPLED))
    read = _choose_prefix_case([item[name] for item in first if isinstance(item, Example)], request)
    known = detect_scheme([read(item[name]) for item in first if isinstance(item, Example)])
    if known not in ("bio", "none"):
        request.notes.append(f"The tags are {SCHEME_NAMES[known]}; they are read as BIO.")
    total = 0
    for item in chain(first, examples):
        if isinstance(item, DataError):
            yield item
            continue
        given = read(item[name])
        wrong = find_invalid_tag(given, known)
        if wrong is not None:
            hint = "write O, or a prefix and a type, such as B-PER"
            line = item.line if "offsets" in item else item.line + wrong
            what = f"not a tag of {SCHEME_NAMES[known]}"
            yield DataError(what, file=item.file, line=line, column=name, value=given[wrong], hint=hint)
            continue
        tags, mended = to_bio(given, known)
        total += mended
        yield Example({**item.values, name: tags}, item.file, item.line)
    if total:
        request.notes.append(
            f"{total:,} tags went on with a span that was not open (I after O, or another type); read as B."
        )


def _choose_prefix_case(
    sentences: Sequence[Sequence[str]], request: ReadRequest
) -> Callable[[Sequence[str]], Sequence[str]]:
    """How tags are read: as they stand or, where only that makes them spans, with their prefixes as capital letters."""
    if detect_scheme(sentences) in ("none", "bare"):
        raised = [[uppercase_prefix(tag) for tag in tags] for tags in sentences]
        if detect_scheme(raised) not in ("none", "bare"):
            request.notes.append(
                "The prefixes of the tags are lower-case letters (b-per); they are read as capitals (B-per)."
            )
            return lambda tags: [uppercase_prefix(tag) for tag in tags]
    return lambda tags: tags
