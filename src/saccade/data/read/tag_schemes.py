"""Tag schemes of named entities: BIO, BIOES (BILOU), IO and BIO1 are detected and converted to BIO; invalid tags are repaired."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from saccade.data.example import Example
from saccade.data.read.base import ReadRequest
from saccade.errors import DataError

MAX_SENTENCES_SAMPLED = 10_000  # sentences that are read to detect the scheme
PREFIXED_TAG = re.compile(r"([BIESLUM])-(.+)")
LOWERCASE_TAG = re.compile(r"[biesulm]-.|o$")


def detect_scheme(sentences: Iterable[Sequence[str]]) -> str:
    """Detect the scheme: bio, bioes, io, bio1, bare (types without a prefix, and O) or none (no spans, such as POS tags).

    >>> detect_scheme([["O", "I-PER", "I-PER", "B-PER"]]), detect_scheme([["B-PER", "E-PER", "S-LOC", "O"]])
    ('bio1', 'bioes')
    >>> detect_scheme([["NOUN", "VERB"]])
    'none'
    """
    counts, opened, lone = Counter[str](), 0, 0
    for tags in sentences:
        before = "O"
        for tag in tags:
            counts[tag] += 1
            if tag.startswith("I-") and before[2:] != tag[2:]:
                opened += 1  # an I that begins a span
            if tag.startswith("B-") and (before == "O" or before[2:] != tag[2:]):
                lone += 1  # a B where BIO1 has an I
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
    """Write the prefix of a tag, or O, as a capital letter.

    >>> uppercase_prefix("b-per"), uppercase_prefix("o"), uppercase_prefix("noun")
    ('B-per', 'O', 'noun')
    """
    return tag[0].upper() + tag[1:] if LOWERCASE_TAG.match(tag) else tag


def find_invalid_tag(tags: Sequence[str], scheme: str) -> int | None:
    """The index of the first tag that is not valid in the scheme.

    >>> find_invalid_tag(["O", "B-PER", "PER"], "bio")
    2
    """
    if scheme in ("none", "bare"):
        return None
    return next((i for i, tag in enumerate(tags) if tag != "O" and not PREFIXED_TAG.fullmatch(tag)), None)


def to_bio(tags: Sequence[str], scheme: str) -> tuple[list[str], int]:
    """Convert the tags of a sentence to BIO; returns them and how many were repaired. All tags have to be valid.

    >>> to_bio(["O", "I-PER", "I-PER", "B-PER"], "bio1")
    (['O', 'B-PER', 'I-PER', 'B-PER'], 0)
    >>> to_bio(["O", "I-PER", "I-LOC"], "bio")
    (['O', 'B-PER', 'B-LOC'], 2)
    """
    if scheme == "none":
        return list(tags), 0
    out: list[str] = []
    repaired, previous_type, is_closed = 0, "", True
    for tag in tags:
        if tag == "O":
            out.append("O")
            previous_type, is_closed = "", True
            continue
        prefix, _, span_type = tag.partition("-") if scheme != "bare" else ("I", "-", tag)
        begins = prefix in "BSU"
        continues = span_type == previous_type and not is_closed
        if not begins and not continues and scheme in ("bio", "bioes"):
            repaired += 1
        out.append(f"{'B' if begins or not continues else 'I'}-{span_type}")
        previous_type, is_closed = span_type, prefix in "ESLU"
    return out, repaired


SCHEME_NAMES = {
    "bio1": "BIO1 (IOB1)",
    "bioes": "BIOES",
    "io": "IO",
    "bare": "types without a prefix",
    "bio": "BIO",
    "none": "not spans",
}


def convert_tags_to_bio(examples: Iterator[Example | DataError], request: ReadRequest) -> Iterator[Example | DataError]:
    """Detect the tag scheme by the first sentences and convert all tags to BIO."""
    name = request.find_roles("tags")[0].name
    first = list(islice(examples, MAX_SENTENCES_SAMPLED))
    normalize = _choose_prefix_case([item[name] for item in first if isinstance(item, Example)], request)
    scheme = detect_scheme([normalize(item[name]) for item in first if isinstance(item, Example)])
    if scheme not in ("bio", "none"):
        request.notes.append(f"The tags are in the scheme {SCHEME_NAMES[scheme]}; they are converted to BIO.")
    total = 0
    for item in chain(first, examples):
        if isinstance(item, DataError):
            yield item
            continue
        tags = normalize(item[name])
        invalid = find_invalid_tag(tags, scheme)
        if invalid is not None:
            hint = "write O, or a prefix and a type, such as B-PER"
            line = item.line if "offsets" in item else item.line + invalid
            problem = f"not a tag of the scheme {SCHEME_NAMES[scheme]}"
            yield DataError(problem, file=item.file, line=line, column=name, value=tags[invalid], hint=hint)
            continue
        bio_tags, repaired = to_bio(tags, scheme)
        total += repaired
        yield replace(item, values={**item.values, name: bio_tags})
    if total:
        request.notes.append(
            f"{total:,} tags continued a span that had not begun (I after O, or of another type); read as B."
        )


def _choose_prefix_case(
    sentences: Sequence[Sequence[str]], request: ReadRequest
) -> Callable[[Sequence[str]], Sequence[str]]:
    """How to normalize tags: unchanged or, if that alone makes them spans, with capital letters as prefixes."""
    if detect_scheme(sentences) in ("none", "bare"):
        uppercase = [[uppercase_prefix(tag) for tag in tags] for tags in sentences]
        if detect_scheme(uppercase) not in ("none", "bare"):
            request.notes.append("The prefixes of the tags are lowercase (b-per); they are read as uppercase (B-per).")
            return lambda tags: [uppercase_prefix(tag) for tag in tags]
    return lambda tags: tags
