"""Word alignments of a translator's own attention, where it has one that can be trusted."""

from collections.abc import Callable, Sequence

from saccade.audit.suites.gender.lexicon import GenderLexicon
from saccade.audit.suites.gender.locate import GenderReading, read_genders
from saccade.audit.suites.gender.sentences import OccupationSentence
from saccade.explain.look import look
from saccade.explain.word_alignment import align_words
from saccade.models.model import Model

MAX_ALIGNMENT_ERROR = (
    0.1  # attention that misses more of the nouns that the lexicon knows is not believed about the others
)


def align_by_attention(
    model: Model, texts: Sequence[tuple[str, str]], on_progress: Callable[[int, int | None], None]
) -> list[str] | None:
    """Pharaoh's links of each source and translation; None where the model does not look from one to the other."""
    found = []
    for number, (source, target) in enumerate(texts, 1):
        if not target.strip():
            found.append("")
            continue
        try:
            found.append(align_words(look(model, (source, target))).to_pharaoh())
        except ValueError:
            return None
        on_progress(number, len(texts))
    return found


def read_genders_with_fallback(
    language: GenderLexicon,
    sentences: Sequence[OccupationSentence],
    translations: Sequence[str],
    links: Sequence[str] | None,
) -> tuple[list[GenderReading], str]:
    """The genders, by attention's links if they can be trusted and by statistics if not, and a sentence that says which."""
    if links is None:
        return read_genders(sentences, translations, language), "Words are aligned by statistics over the sentences."
    readings = read_genders(sentences, translations, language, links)
    told = [one.alignment_agrees for one in readings if one.alignment_agrees is not None]
    missed = told.count(False) / max(1, len(told))
    if missed <= MAX_ALIGNMENT_ERROR:
        return readings, "Words are aligned by the model's attention."
    said = f"Attention points elsewhere for {missed:.0%} of the nouns, so words are aligned by statistics."
    return read_genders(sentences, translations, language), said
