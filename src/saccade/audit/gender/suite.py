"""Suite `gender`: does a translator give people the gender that the sentence gives them, or the one that a stereotype expects?"""

from collections.abc import Sequence
from hashlib import sha256

from saccade.audit.gender.attend import links_of, read_with
from saccade.audit.gender.find import Reading
from saccade.audit.gender.lexicon import LANGUAGES, language, words_of
from saccade.audit.gender.measure import by_occupation, by_people, figures, wrong_ones
from saccade.audit.gender.sentences import Sentence, own_sentences, read_winomt
from saccade.audit.stats import share
from saccade.audit.suite import Finding, Grid, Subject, Suite
from saccade.data import Example
from saccade.tasks.answering import answers
from saccade.tasks.task import Task
from saccade.text.languages import language_of

COUNT = 400  # of our own sentences: two minutes of a small translator are enough for them
SHOWN = 12  # translations that are shown where none can be read
KNOWN = 0.3  # of the translations name the occupation in a language: then it is surely that one

BASELINE = (
    "Accuracy is read against a translator that always writes the masculine; the two gaps against nought, which is what somebody "
    "has who only follows the pronoun."
)
LIMITS = (
    "Only two genders and one kind of sentence are looked at: a person by occupation and a pronoun, in English. The gender is "
    "that of one noun phrase; what the translation does with pronouns and adjectives further on is not read. Sentences come "
    "from templates and occupations that we chose, with shares of women in the United States, so intervals say what another "
    "draw of such sentences would give, not what other texts would. A noun that is not found, or shows no gender, counts as "
    "wrong. A good score does not show that a translator treats people fairly; a bad one shows that it does not."
)


class Genders(Suite):
    name = "gender"
    said = "translation: whether people keep the gender that the sentence gives them"

    def unfit(self, task: Task) -> str:
        return "" if task.hub_pipeline == "translation" else f"it reads translations, and {task.name} writes none"

    def run(self, subject: Subject) -> Finding:
        sentences = [one for path in subject.sentences for one in read_winomt(path)] or own_sentences(COUNT)
        asked = [Example({"source": sentence.text}) for sentence in sentences]
        model = subject.need_model()
        found, _ = answers(subject.task, model, asked, told=subject.told)
        code = guess(sentences, found)
        pairs = [(sentence.text, text) for sentence, text in zip(sentences, found, strict=True)]
        links = links_of(model, pairs, subject.told) if code else None
        return judge(sentences, found, into=code, links=links)

    def source(self) -> str:
        return sha256("\n".join(sentence.text for sentence in own_sentences(COUNT)).encode()).hexdigest()


def judge(
    sentences: Sequence[Sentence], translations: Sequence[str], *, into: str = "", links: Sequence[str] | None = None
) -> Finding:
    """What translations, new or stored, do to gender; `into` is one of LANGUAGES, or guessed, `links` are Pharaoh's."""
    code = into or guess(sentences, translations)
    if not code:
        return _nothing(sentences, translations)
    readings, how = read_with(language(code), sentences, translations, links)
    return Finding(
        "gender",
        figures(readings),
        BASELINE,
        LIMITS,
        (by_people(readings), by_occupation(readings)),
        wrong_ones(readings),
        (f"Translations into {LANGUAGES[code]}; how the nouns were found: {_ways(readings)}. {how}",),
    )


def guess(sentences: Sequence[Sentence], translations: Sequence[str]) -> str:
    """The language in which the lexicon knows the most of the occupations; where it knows few in any, as of a poor
    translator, the one whose small words the texts have; "" where that is none of ours.
    """
    known = dict.fromkeys(LANGUAGES, 0.0)
    for code in LANGUAGES:
        lexicon = language(code)
        for sentence, text in zip(sentences, translations, strict=True):
            words = [word for word, _ in words_of(text)]
            small = sum(word.lower() in lexicon.stops or word.lower() in lexicon.articles for word in words)
            named = any(sentence.occupation in span.form.occupations for span in lexicon.spans(words))
            known[code] += named * (1 + small / max(1, len(words))) / len(sentences)
    best = max(known, key=lambda code: known[code])
    if known[best] >= KNOWN:
        return best
    code = language_of(" ".join(translations))
    return code if code in LANGUAGES else ""


def _ways(readings: Sequence[Reading]) -> str:
    count = {how: sum(one.how == how for one in readings) for how in ("lexicon", "alignment", "nowhere")}
    return f"by the lexicon {count['lexicon']:,}, by alignment {count['alignment']:,}, not at all {count['nowhere']:,}"


def _nothing(sentences: Sequence[Sentence], translations: Sequence[str]) -> Finding:
    known = ", ".join(LANGUAGES.values())
    note = f"Nothing was measured: the translations are not in a language whose nouns can be read here ({known})."
    found = share("not found", [True] * len(sentences))
    rows = tuple((sentence.text, text) for sentence, text in zip(sentences[:SHOWN], translations, strict=False))
    examples = Grid("Translations that were not read", ("sentence", "translation"), rows)
    return Finding("gender", (found,), BASELINE, LIMITS, (), examples, (note,))
