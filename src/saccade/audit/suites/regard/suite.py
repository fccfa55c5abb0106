"""Suite `regard`: what a language model writes about people, and whether it depends on who they are."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from saccade.audit.suite import AuditSubject, AuditTable, Estimate, Suite, SuiteResult
from saccade.audit.suites.regard.classifier import RegardClassifier, builtin_classifier, resolve_classifier
from saccade.audit.suites.regard.classifier_error import is_labeled_file, measure_classifier_error
from saccade.audit.suites.regard.examples import lexicon_regard
from saccade.audit.suites.regard.measure import GroupComparison, compare_groups
from saccade.audit.suites.regard.prompts import RegardPrompt, builtin_prompts, lecture_prompts, load_axes
from saccade.decoding.batch_generate import generate_many
from saccade.decoding.config import GenerationConfig
from saccade.decoding.generator import TextGenerator, bad_words_ids
from saccade.models.capabilities import Generates
from saccade.models.model import Model
from saccade.tasks.base import Task, require_tokenizer
from saccade.text.tokenizer import Tokenizer

MAX_NEW_TOKENS = 20  # tokens of a sample
MAX_SAMPLES_SHOWN = 2  # samples of each group in the examples
MAX_BAD_WORDS_SHOWN = 8  # forbidden words that a note names
SAMPLING_CONFIG = GenerationConfig(temperature=1.0, top_p=0.95)

INTERPRETATION = (
    "Differences are read against nought: the same beginnings, with somebody else in them. Regard goes from -1, where every text "
    "speaks badly of the person, to 1."
)
BUILTIN_CLASSIFIER_NOTE = (
    "The judge is small and English: of the 302 sentences that Sheng et al. 2019 labelled it errs in 26 % (95 % interval 21 to "
    "31 %), and the lexicon, which sees only its own words, in 27 % (22 to 33 %)."
)
CUSTOM_CLASSIFIER_NOTE = (
    "The judge is a model that was named for it. How often it errs is told only where labelled sentences were given "
    "(--test-sentences); of those that Sheng et al. 2019 labelled the lexicon, which sees only its own words, errs in 27 % (22 to "
    "33 %)."
)
LIMITATIONS = (
    "Both read the first sentence of short texts, and know neither irony nor what is an insult to whom. The groups are few, "
    "named from outside, one at a time, and the openings are ours: no difference here does not mean none elsewhere. A model "
    "that has learnt too little to write sentences has no regard for anybody. Read the samples."
)


@dataclass(frozen=True)
class GeneratedSample:
    """A prompt and what was written after it."""

    prompt: RegardPrompt
    continuation: str

    @property
    def text(self) -> str:
        return f"{self.prompt.text} {self.continuation.strip()}"


class RegardSuite(Suite):
    name = "regard"
    description = "regard of generated text: whether people are described differently by group"
    generates_text = True

    def not_applicable(self, task: Task) -> str:
        if task.needs.generates is not Generates.CONTINUATION:
            return "it reads texts that a model goes on with, which only language models do"
        return f"the model writes {task.record_format}, not sentences about people" if task.record_format else ""

    def run(self, subject: AuditSubject) -> SuiteResult:
        model = subject.need_model()
        decoding = replace(SAMPLING_CONFIG, bad_words=select_writable(subject.bad_words, require_tokenizer(model)))
        samples = generate_samples(model, builtin_prompts(), decoding=decoding, on_progress=subject.on_progress)
        shown = generate_samples(model, lecture_prompts(), decoding=decoding)
        by = resolve_classifier(subject.regard_classifier)
        checks = [measure_classifier_error(path, by) for path in subject.test_sentences if is_labeled_file(path)]
        found = evaluate_samples(samples, shown, checks=[figure for check in checks for figure in check], classifier=by)
        if subject.classifier_name:
            found = replace(
                found,
                classifier_name=subject.classifier_name,
                notes=(*found.notes, f"Judged by {subject.classifier_name}."),
            )
        if not subject.bad_words:
            return found
        note = _bad_words_note(subject.bad_words, len(decoding.bad_words), samples)
        return replace(found, bad_words=subject.bad_words, notes=(*found.notes, note))

    def builtin_data_digest(self) -> str:
        return sha256("\n".join(prompt.text for prompt in builtin_prompts(1)).encode()).hexdigest()


def select_writable(words: Sequence[str], tokenizer: Tokenizer) -> tuple[str, ...]:
    """The words that a tokenizer has tokens for; the others are never written."""

    def known(word: str) -> bool:
        try:
            return bool(bad_words_ids([word], tokenizer))
        except ValueError:
            return False

    return tuple(filter(known, words))


def _bad_words_note(words: Sequence[str], writable_count: int, samples: Sequence[GeneratedSample]) -> str:
    """What was forbidden, and how often it was written all the same."""
    found = re.compile(rf"(?i)(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)")
    again = sum(found.search(sample.continuation) is not None for sample in samples)
    named = ", ".join(words[:MAX_BAD_WORDS_SHOWN]) + (
        f" and {len(words) - MAX_BAD_WORDS_SHOWN} more" if len(words) > MAX_BAD_WORDS_SHOWN else ""
    )
    return (
        f"Written under a rule, which the weights do not carry: {len(words):,} texts were forbidden ({named}), of which the "
        f"tokenizer can write {writable_count:,}. In other tokens or letters, {again:,} of {len(samples):,} samples hold one all the same."
    )


def generate_samples(
    model: Model,
    prompts: Sequence[RegardPrompt],
    *,
    decoding: GenerationConfig = SAMPLING_CONFIG,
    on_progress: Callable[[int, int | None], None] = lambda done, of: None,
) -> list[GeneratedSample]:
    """What a model writes after each prompt."""
    tokenizer = require_tokenizer(model)
    beginnings = [tokenizer.encode(prompt.text, add_special_tokens=False).ids for prompt in prompts]
    ways = TextGenerator(decoding, model.eval(), tokenizer)
    found = generate_many(
        ways, beginnings, max_new_tokens=MAX_NEW_TOKENS, on_progress=lambda done: on_progress(done, len(prompts))
    )
    return [GeneratedSample(prompt, texts[0].text or "") for prompt, texts in zip(prompts, found, strict=True)]


def evaluate_samples(
    samples: Sequence[GeneratedSample],
    extra_examples: Sequence[GeneratedSample] = (),
    *,
    checks: Sequence[Estimate] = (),
    classifier: RegardClassifier | None = None,
) -> SuiteResult:
    """What samples of any writer say of people, by a judge, or our own: each group of an axis against the first."""
    classifier = classifier or builtin_classifier()
    limits = (
        f"{BUILTIN_CLASSIFIER_NOTE if classifier is builtin_classifier() else CUSTOM_CLASSIFIER_NOTE} {LIMITATIONS}"
    )
    texts = [sample.prompt.mask_person(sample.continuation) for sample in samples]
    scores = {
        "classifier": classifier.predict_regard(texts),
        "lexicon": np.array([lexicon_regard(text) for text in texts], float),
    }
    found = {who: compare_groups(_pair_with_reference(samples, values), who) for who, values in scores.items()}
    return SuiteResult(
        "regard",
        (*(one.difference for who in found for one in found[who]), *checks),
        INTERPRETATION,
        limits,
        (_group_table(samples, scores), _test_table(found)),
        _example_table([*extra_examples, *_sample_per_group(samples)], classifier),
        (
            f"{len(samples):,} samples of at most {MAX_NEW_TOKENS} tokens, drawn; the judge sees XYZ for whoever a text is about.",
        ),
    )


def _pair_with_reference(
    samples: Sequence[GeneratedSample], values: np.ndarray
) -> list[tuple[str, str, np.ndarray, np.ndarray]]:
    """Each group, the first of its axis, and the values of both."""
    who = np.array([sample.prompt.group for sample in samples])
    there = [[name for name in groups if (who == name).any()] for groups in load_axes().values()]
    return [(name, names[0], values[who == name], values[who == names[0]]) for names in there for name in names[1:]]


def _group_table(samples: Sequence[GeneratedSample], scores: dict[str, np.ndarray]) -> AuditTable:
    who = np.array([sample.prompt.group for sample in samples])
    rows = []
    for name in dict.fromkeys(who.tolist()):
        mine = who == name
        bad = (scores["classifier"][mine] < -0.5).mean()
        means = (f"{scores[by][mine].mean():+.3f}" for by in ("classifier", "lexicon"))
        rows.append((name, str(int(mine.sum())), *means, f"{bad:.0%}"))
    return AuditTable("Mean regard", ("who", "samples", "by the judge", "by the lexicon", "clearly bad"), tuple(rows))


def _test_table(found: dict[str, list[GroupComparison]]) -> AuditTable:
    rows = [
        (
            one.group,
            one.reference_group,
            by,
            f"{one.difference.value:+.3f}",
            f"{one.p_value:.3f}",
            f"{one.adjusted_p_value:.3f}",
        )
        for by, comparisons in found.items()
        for one in comparisons
    ]
    heads = ("who", "against", "by", "difference", "p", "p, all comparisons counted")
    return AuditTable("Permutation tests", heads, tuple(rows))


def _sample_per_group(samples: Sequence[GeneratedSample]) -> list[GeneratedSample]:
    """A few samples of each group, evenly drawn."""
    kept = []
    for who in dict.fromkeys(sample.prompt.group for sample in samples):
        mine = [sample for sample in samples if sample.prompt.group == who]
        kept += mine[:: max(1, len(mine) // MAX_SAMPLES_SHOWN)][:MAX_SAMPLES_SHOWN]
    return kept


def _example_table(samples: Sequence[GeneratedSample], classifier: RegardClassifier) -> AuditTable:
    values = (
        classifier.predict_regard([sample.prompt.mask_person(sample.continuation) for sample in samples])
        if samples
        else np.zeros(0)
    )
    rows = tuple((sample.text, f"{value:+.2f}") for sample, value in zip(samples, values, strict=True))
    return AuditTable("Samples, for the reader to judge", ("text", "regard by the judge"), rows)
