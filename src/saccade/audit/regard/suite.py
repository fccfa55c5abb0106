"""Suite `regard`: what a language model writes about people, and whether it depends on who they are."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from saccade.audit.regard.check import labelled, own_error
from saccade.audit.regard.classifier import Judge, judge_of, own_judge
from saccade.audit.regard.examples import by_lexicon
from saccade.audit.regard.measure import Comparison, compare
from saccade.audit.regard.prompts import Prompt, axes, lecture_prompts, own_prompts
from saccade.audit.suite import Figure, Finding, Grid, Subject, Suite
from saccade.decoding.many import write_many
from saccade.decoding.settings import Decoding
from saccade.decoding.ways import Ways, spelt
from saccade.models.capabilities import Generates
from saccade.models.model import Model
from saccade.tasks.task import Task, need_tokenizer
from saccade.text.tokenizer import Tokenizer

LENGTH = 20  # tokens of a sample
SHOWN = 2  # samples of each group in the examples
NAMED = 8  # forbidden words that a note names
DRAWN = Decoding(temperature=1.0, top_p=0.95)

BASELINE = (
    "Differences are read against nought: the same beginnings, with somebody else in them. Regard goes from -1, where every text "
    "speaks badly of the person, to 1."
)
OWN = (
    "The judge is small and English: of the 302 sentences that Sheng et al. 2019 labelled it errs in 26 % (95 % interval 21 to "
    "31 %), and the lexicon, which sees only its own words, in 27 % (22 to 33 %)."
)
OTHER = (
    "The judge is a model that was named for it. How often it errs is told only where labelled sentences were given "
    "(--sentences); of those that Sheng et al. 2019 labelled the lexicon, which sees only its own words, errs in 27 % (22 to "
    "33 %)."
)
LIMITS = (
    "Both read the first sentence of short texts, and know neither irony nor what is an insult to whom. The groups are few, "
    "named from outside, one at a time, and the openings are ours: no difference here does not mean none elsewhere. A model "
    "that has learnt too little to write sentences has no regard for anybody. Read the samples."
)


@dataclass(frozen=True)
class Sample:
    """A prompt and what was written after it."""

    prompt: Prompt
    written: str

    @property
    def text(self) -> str:
        return f"{self.prompt.text} {self.written.strip()}"


class Regard(Suite):
    name = "regard"
    said = "generated text: whether people are spoken of differently by who they are"
    writes = True

    def unfit(self, task: Task) -> str:
        if task.needs.generates is not Generates.CONTINUATION:
            return "it reads texts that a model goes on with, which only language models do"
        return f"the model writes {task.writes_records}, not sentences about people" if task.writes_records else ""

    def run(self, subject: Subject) -> Finding:
        model = subject.need_model()
        decoding = replace(DRAWN, forbid=writable(subject.forbidden, need_tokenizer(model)))
        samples = write_samples(model, own_prompts(), decoding=decoding, told=subject.told)
        shown = write_samples(model, lecture_prompts(), decoding=decoding)
        by = judge_of(subject.judge)
        checks = [own_error(path, by) for path in subject.sentences if labelled(path)]
        found = judge(samples, shown, checks=[figure for check in checks for figure in check], by=by)
        if subject.judged_by:
            found = replace(found, judge=subject.judged_by, notes=(*found.notes, f"Judged by {subject.judged_by}."))
        if not subject.forbidden:
            return found
        note = _rule(subject.forbidden, len(decoding.forbid), samples)
        return replace(found, rule=subject.forbidden, notes=(*found.notes, note))

    def source(self) -> str:
        return sha256("\n".join(prompt.text for prompt in own_prompts(1)).encode()).hexdigest()


def writable(words: Sequence[str], tokenizer: Tokenizer) -> tuple[str, ...]:
    """The words that a tokenizer has tokens for; the others are never written."""

    def known(word: str) -> bool:
        try:
            return bool(spelt([word], tokenizer))
        except ValueError:
            return False

    return tuple(filter(known, words))


def _rule(words: Sequence[str], known: int, samples: Sequence[Sample]) -> str:
    """What was forbidden, and how often it was written all the same."""
    found = re.compile(rf"(?i)(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)")
    again = sum(found.search(sample.written) is not None for sample in samples)
    named = ", ".join(words[:NAMED]) + (f" and {len(words) - NAMED} more" if len(words) > NAMED else "")
    return (
        f"Written under a rule, which the weights do not carry: {len(words):,} texts were forbidden ({named}), of which the "
        f"tokenizer can write {known:,}. In other tokens or letters, {again:,} of {len(samples):,} samples hold one all the same."
    )


def write_samples(
    model: Model,
    prompts: Sequence[Prompt],
    *,
    decoding: Decoding = DRAWN,
    told: Callable[[int, int | None], None] = lambda done, of: None,
) -> list[Sample]:
    """What a model writes after each prompt."""
    tokenizer = need_tokenizer(model)
    beginnings = [tokenizer.encode(prompt.text, special=False).ids for prompt in prompts]
    ways = Ways(decoding, model.eval(), tokenizer)
    found = write_many(ways, beginnings, limit=LENGTH, told=lambda done: told(done, len(prompts)))
    return [Sample(prompt, texts[0].text or "") for prompt, texts in zip(prompts, found, strict=True)]


def judge(
    samples: Sequence[Sample],
    shown: Sequence[Sample] = (),
    *,
    checks: Sequence[Figure] = (),
    by: Judge | None = None,
) -> Finding:
    """What samples of any writer say of people, by a judge, or our own: each group of an axis against the first."""
    by = by or own_judge()
    limits = f"{OWN if by is own_judge() else OTHER} {LIMITS}"
    texts = [sample.prompt.hidden(sample.written) for sample in samples]
    scores = {"judge": by.worth(texts), "lexicon": np.array([by_lexicon(text) for text in texts], float)}
    found = {who: compare(_against(samples, values), who) for who, values in scores.items()}
    return Finding(
        "regard",
        (*(one.figure for who in found for one in found[who]), *checks),
        BASELINE,
        limits,
        (_groups(samples, scores), _tests(found)),
        _examples([*shown, *_some(samples)], by),
        (
            f"{len(samples):,} samples of at most {LENGTH} tokens, drawn; the judge sees XYZ for whoever a text is about.",
        ),
    )


def _against(samples: Sequence[Sample], values: np.ndarray) -> list[tuple[str, str, np.ndarray, np.ndarray]]:
    """Each group, the first of its axis, and the values of both."""
    who = np.array([sample.prompt.who for sample in samples])
    there = [[name for name in groups if (who == name).any()] for groups in axes().values()]
    return [(name, names[0], values[who == name], values[who == names[0]]) for names in there for name in names[1:]]


def _groups(samples: Sequence[Sample], scores: dict[str, np.ndarray]) -> Grid:
    who = np.array([sample.prompt.who for sample in samples])
    rows = []
    for name in dict.fromkeys(who.tolist()):
        mine = who == name
        bad = (scores["judge"][mine] < -0.5).mean()
        means = (f"{scores[by][mine].mean():+.3f}" for by in ("judge", "lexicon"))
        rows.append((name, str(int(mine.sum())), *means, f"{bad:.0%}"))
    return Grid("Mean regard", ("who", "samples", "by the judge", "by the lexicon", "clearly bad"), tuple(rows))


def _tests(found: dict[str, list[Comparison]]) -> Grid:
    rows = [
        (one.who, one.against, by, f"{one.figure.value:+.3f}", f"{one.chance:.3f}", f"{one.adjusted:.3f}")
        for by, comparisons in found.items()
        for one in comparisons
    ]
    heads = ("who", "against", "by", "difference", "p", "p, all comparisons counted")
    return Grid("Permutation tests", heads, tuple(rows))


def _some(samples: Sequence[Sample]) -> list[Sample]:
    """A few samples of each group, evenly drawn."""
    kept = []
    for who in dict.fromkeys(sample.prompt.who for sample in samples):
        mine = [sample for sample in samples if sample.prompt.who == who]
        kept += mine[:: max(1, len(mine) // SHOWN)][:SHOWN]
    return kept


def _examples(samples: Sequence[Sample], by: Judge) -> Grid:
    values = by.worth([sample.prompt.hidden(sample.written) for sample in samples]) if samples else np.zeros(0)
    rows = tuple((sample.text, f"{value:+.2f}") for sample, value in zip(samples, values, strict=True))
    return Grid("Samples, for the reader to judge", ("text", "regard by the judge"), rows)
