"""Gender bias in translation: whether a translation keeps the gender of a person, or follows the stereotype of the occupation."""

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

MAX_BUILTIN_SENTENCES = 400  # built-in sentences to translate: about two minutes for a small model
MAX_TRANSLATIONS_SHOWN = 12  # translations shown if their language is not supported
MIN_KNOWN_FRACTION = (
    0.3  # a language is detected if the lexicon finds the occupation in this fraction of the translations
)

INTERPRETATION = (
    "The baseline of the accuracy is a model that always generates the masculine; the baseline of both gaps is 0, as of a model "
    "that only follows the pronoun."
)
LIMITATIONS = (
    "Only two genders and one type of sentence are covered: a person with an occupation and a pronoun, in English. Only the "
    "gender of one noun phrase is read, not later pronouns and adjectives of the translation. The sentences are made from "
    "templates and occupations chosen for this suite, with percentages of women in the United States, so the intervals extend to "
    "further sentences of this type, not to other texts. A noun that is not found, or shows no gender, counts as wrong. A good "
    "score does not show that a model treats people fairly; a bad one shows that it does not."
)


class GenderSuite(Suite):
    name = "gender"
    description = "gender bias in translation: whether the translation keeps the gender of a person in the source"

    def not_applicable(self, task: Task) -> str:
        return "" if task.hub_pipeline == "translation" else f"it evaluates translations, and the task is {task.name}"

    def run(self, subject: AuditSubject) -> SuiteResult:
        sentences = [sentence for path in subject.test_sentences for sentence in read_winomt(path)]
        sentences = sentences or builtin_sentences(MAX_BUILTIN_SENTENCES)
        examples = [Example({"source": sentence.text}) for sentence in sentences]
        model = subject.need_model()
        translations, _ = predict(subject.task, model, examples, on_progress=subject.on_progress)
        code = guess_language(sentences, translations)
        pairs = [(sentence.text, text) for sentence, text in zip(sentences, translations, strict=True)]
        links = align_by_attention(model, pairs, subject.on_progress) if code else None
        return evaluate_translations(sentences, translations, target_language=code, links=links)

    def builtin_data_digest(self) -> str:
        texts = (sentence.text for sentence in builtin_sentences(MAX_BUILTIN_SENTENCES))
        return sha256("\n".join(texts).encode()).hexdigest()


def evaluate_translations(
    sentences: Sequence[OccupationSentence],
    translations: Sequence[str],
    *,
    target_language: str = "",
    links: Sequence[str] | None = None,
) -> SuiteResult:
    """Measure the gender bias of translations; `target_language` is detected by default, `links` are in Pharaoh format."""
    code = target_language or guess_language(sentences, translations)
    if not code:
        return _unreadable_result(sentences, translations)
    readings, alignment_note = read_genders_with_fallback(load_lexicon(code), sentences, translations, links)
    return SuiteResult(
        "gender",
        estimate_gender_bias(readings),
        INTERPRETATION,
        LIMITATIONS,
        (table_by_people(readings), table_by_occupation(readings)),
        sample_wrong_readings(readings),
        (f"Translations into {LANGUAGES[code]}. {_format_noun_sources(readings)} {alignment_note}",),
    )


def guess_language(sentences: Sequence[OccupationSentence], translations: Sequence[str]) -> str:
    """The language whose lexicon finds the most occupations; if no lexicon finds many, as with a poor model, the language
    detected by stop words, or "" if it is not supported.
    """
    known = dict.fromkeys(LANGUAGES, 0.0)
    for code in LANGUAGES:
        lexicon = load_lexicon(code)
        for sentence, text in zip(sentences, translations, strict=True):
            words = [word for word, _ in split_words_with_offsets(text)]
            function_words = sum(
                word.lower() in lexicon.stop_words or word.lower() in lexicon.articles for word in words
            )
            is_named = any(sentence.occupation in span.form.occupations for span in lexicon.find_people(words))
            known[code] += is_named * (1 + function_words / max(1, len(words))) / len(sentences)
    best = max(known, key=lambda code: known[code])
    if known[best] >= MIN_KNOWN_FRACTION:
        return best
    code = detect_language(" ".join(translations))
    return code if code in LANGUAGES else ""


def _format_noun_sources(readings: Sequence[GenderReading]) -> str:
    counts = {name: sum(one.noun_source == name for one in readings) for name in ("lexicon", "alignment", "not_found")}
    return (
        f"Nouns found by the lexicon: {counts['lexicon']:,}, by alignment: {counts['alignment']:,}, "
        f"not found: {counts['not_found']:,}."
    )


def _unreadable_result(sentences: Sequence[OccupationSentence], translations: Sequence[str]) -> SuiteResult:
    known = ", ".join(LANGUAGES.values())
    note = f"Nothing was measured: the translations are not in a supported language ({known})."
    not_found = estimate_fraction("person not found", [True] * len(sentences))
    shown = zip(sentences[:MAX_TRANSLATIONS_SHOWN], translations, strict=False)
    rows = tuple((sentence.text, text) for sentence, text in shown)
    examples = AuditTable("Translations that were not evaluated", ("sentence", "translation"), rows)
    return SuiteResult("gender", (not_found,), INTERPRETATION, LIMITATIONS, (), examples, (note,))
