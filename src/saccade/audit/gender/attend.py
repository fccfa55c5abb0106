"""Word alignments of a translator's own attention, where it has one that can be trusted."""

from collections.abc import Callable, Sequence

from saccade.audit.gender.find import Reading, read_genders
from saccade.audit.gender.lexicon import Language
from saccade.audit.gender.sentences import Sentence
from saccade.explain.align import align
from saccade.explain.look import look
from saccade.models.model import Model

TRUST = 0.1  # attention that misses more of the nouns that the lexicon knows is not believed about the others


def links_of(
    model: Model, texts: Sequence[tuple[str, str]], told: Callable[[int, int | None], None]
) -> list[str] | None:
    """Pharaoh's links of each source and translation; None where the model does not look from one to the other."""
    found = []
    for number, (source, target) in enumerate(texts, 1):
        if not target.strip():
            found.append("")
            continue
        try:
            found.append(align(look(model, (source, target))).pharaoh())
        except ValueError:
            return None
        told(number, len(texts))
    return found


def read_with(
    language: Language, sentences: Sequence[Sentence], translations: Sequence[str], links: Sequence[str] | None
) -> tuple[list[Reading], str]:
    """The genders, by attention's links if they can be trusted and by statistics if not, and a sentence that says which."""
    if links is None:
        return read_genders(sentences, translations, language), "Words are aligned by statistics over the sentences."
    readings = read_genders(sentences, translations, language, links)
    told = [one.agreed for one in readings if one.agreed is not None]
    missed = told.count(False) / max(1, len(told))
    if missed <= TRUST:
        return readings, "Words are aligned by the model's attention."
    said = f"Attention points elsewhere for {missed:.0%} of the nouns, so words are aligned by statistics."
    return read_genders(sentences, translations, language), said
