"""Suite `gender`: does a translator give people the gender that the sentence gives them, or the one that a stereotype expects?"""

from collections.abc import Sequence
from hashlib import sha256

from saccade.audit.stats import estimate_fraction
from saccade.audit.suite import AuditSubject, AuditTable, Suite, SuiteResult
from saccade.audit.suites.gender.attention_alignment import align_by_attention, read_genders_with_fallback
from saccade.audit.suites.gender.lexicon import LANGUAGES, load_lexicon, split_words_with_offsets
from saccade.audit.suites.gender.locate import GenderReading
from saccade.audit.suites.gender.measure import (
    estimate_gender_bias,
    sample_wrong_readings,
    table_by_occupation,
    table_by_people,
)
from saccade.audit.suites.gender.sentences import OccupationSentence, builtin_sentences, read_winomt
from saccade.data import Example
from saccade.tasks.base import Task
from saccade.tasks.predict import predict
from saccade.text.language_id import detect_language

MAX_BUILTIN_SENTENCES = 400  # of our own sentences: two minutes of a small translator are enough for them
MAX_TRANSLATIONS_SHOWN = 12  # translations that are shown where none can be read
MIN_KNOWN_FRACTION = 0.3  # of the translations name the occupation in a language: then it is surely that one

INTERPRETATION = (
    "Accuracy is read against a translator that always writes the masculine; the two gaps against nought, which is what somebody "
    "has who only follows the pronoun."
)
LIMITATIONS = (
    "Only two genders and one kind of sentence are looked at: a person by occupation and a pronoun, in English. The gender is "
    "that of one noun phrase; what the translation does with pronouns and adjectives further on is not read. Sentences come "
    "from templates and occupations that we chose, with shares of women in the United States, so intervals say what another "
    "draw of such sentences would give, not what other texts would. A noun that is not found, or shows no gender, counts as "
    "wrong. A good score does not show that a translator treats people fairly; a bad one shows that it does not."
)


class GenderSuite(Suite):
    name = "gender"
    description = "gender bias in translation: whether the translation keeps the gender of a person in the source"

    def not_applicable(self, task: Task) -> str:
        return "" if task.hub_pipeline == "translation" else f"it reads translations, and {task.name} writes none"

    def run(self, subject: AuditSubject) -> SuiteResult:
        sentences = [one for path in subject.test_sentences for one in read_winomt(path)] or builtin_sentences(
            MAX_BUILTIN_SENTENCES
        )
        asked = [Example({"source": sentence.text}) for sentence in sentences]
        model = subject.need_model()
        found, _ = predict(subject.task, model, asked, on_progress=subject.on_progress)
        code = guess_language(sentences, found)
        pairs = [(sentence.text, text) for sentence, text in zip(sentences, found, strict=True)]
        links = align_by_attention(model, pairs, subject.on_progress) if code else None
        return evaluate_translations(sentences, found, target_language=code, links=links)

    def builtin_data_digest(self) -> str:
        return sha256(
            "\n".join(sentence.text for sentence in builtin_sentences(MAX_BUILTIN_SENTENCES)).encode()
        ).hexdigest()


def evaluate_translations(
    sentences: Sequence[OccupationSentence],
    translations: Sequence[str],
    *,
    target_language: str = "",
    links: Sequence[str] | None = None,
) -> SuiteResult:
    """What translations, new or stored, do to gender; `into` is one of LANGUAGES, or guessed, `links` are Pharaoh's."""
    code = target_language or guess_language(sentences, translations)
    if not code:
        return _unreadable_result(sentences, translations)
    readings, how = read_genders_with_fallback(load_lexicon(code), sentences, translations, links)
    return SuiteResult(
        "gender",
        estimate_gender_bias(readings),
        INTERPRETATION,
        LIMITATIONS,
        (table_by_people(readings), table_by_occupation(readings)),
        sample_wrong_readings(readings),
        (f"Translations into {LANGUAGES[code]}; how the nouns were found: {_format_noun_sources(readings)}. {how}",),
    )


def guess_language(sentences: Sequence[OccupationSentence], translations: Sequence[str]) -> str:
    """The language in which the lexicon knows the most of the occupations; where it knows few in any, as of a poor
    translator, the one whose small words the texts have; "" where that is none of ours.
    """
    known = dict.fromkeys(LANGUAGES, 0.0)
    for code in LANGUAGES:
        lexicon = load_lexicon(code)
        for sentence, text in zip(sentences, translations, strict=True):
            words = [word for word, _ in split_words_with_offsets(text)]
            small = sum(word.lower() in lexicon.stop_words or word.lower() in lexicon.articles for word in words)
            named = any(sentence.occupation in span.form.occupations for span in lexicon.find_people(words))
            known[code] += named * (1 + small / max(1, len(words))) / len(sentences)
    best = max(known, key=lambda code: known[code])
    if known[best] >= MIN_KNOWN_FRACTION:
        return best
    code = detect_language(" ".join(translations))
    return code if code in LANGUAGES else ""


def _format_noun_sources(readings: Sequence[GenderReading]) -> str:
    count = {how: sum(one.noun_source == how for one in readings) for how in ("lexicon", "alignment", "not_found")}
    return (
        f"by the lexicon {count['lexicon']:,}, by alignment {count['alignment']:,}, not at all {count['not_found']:,}"
    )


def _unreadable_result(sentences: Sequence[OccupationSentence], translations: Sequence[str]) -> SuiteResult:
    known = ", ".join(LANGUAGES.values())
    note = f"Nothing was measured: the translations are not in a language whose nouns can be read here ({known})."
    found = estimate_fraction("not found", [True] * len(sentences))
    rows = tuple(
        (sentence.text, text) for sentence, text in zip(sentences[:MAX_TRANSLATIONS_SHOWN], translations, strict=False)
    )
    examples = AuditTable("Translations that were not read", ("sentence", "translation"), rows)
    return SuiteResult("gender", (found,), INTERPRETATION, LIMITATIONS, (), examples, (note,))
