"""Word alignments by the cross-attention of the translation model, if they are accurate enough."""

from collections.abc import Callable, Sequence

from saccade.audit.suites.gender.lexicon import GenderLexicon
from saccade.audit.suites.gender.locate import GenderReading, read_genders
from saccade.audit.suites.gender.sentences import OccupationSentence
from saccade.explain.look import look
from saccade.explain.word_alignment import align_words
from saccade.models.model import Model

MAX_ALIGNMENT_ERROR = 0.1  # attention is not used if it misses more of the nouns that the lexicon knows


def align_by_attention(
    model: Model, texts: Sequence[tuple[str, str]], on_progress: Callable[[int, int | None], None]
) -> list[str] | None:
    """Word alignments of all sources and translations in Pharaoh format; None if the model has no cross-attention."""
    links = []
    for number, (source, target) in enumerate(texts, 1):
        if not target.strip():
            links.append("")
            continue
        try:
            links.append(align_words(look(model, (source, target))).to_pharaoh())
        except ValueError:
            return None
        on_progress(number, len(texts))
    return links


def read_genders_with_fallback(
    language: GenderLexicon,
    sentences: Sequence[OccupationSentence],
    translations: Sequence[str],
    links: Sequence[str] | None,
) -> tuple[list[GenderReading], str]:
    """The genders by the attention links if these are accurate, else by statistical alignment, and a note on the method."""
    if links is None:
        return read_genders(sentences, translations, language), "Words are aligned statistically (IBM model 1)."
    readings = read_genders(sentences, translations, language, links)
    agreement = [reading.alignment_agrees for reading in readings if reading.alignment_agrees is not None]
    error = agreement.count(False) / max(1, len(agreement))
    if error <= MAX_ALIGNMENT_ERROR:
        return readings, "Words are aligned by the attention of the model."
    note = f"Words are aligned statistically (IBM model 1), because attention misses {error:.0%} of the nouns."
    return read_genders(sentences, translations, language), note
