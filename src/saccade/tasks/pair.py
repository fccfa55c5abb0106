"""What two texts are to each other: entailment, paraphrase, question and duplicate; a class, or a number (similarity).

The two are read at once, in the tokenizer's own form for pairs, so that each word of the one can look at the other. Where
they are too long, the longer loses its end first. Numbers are learnt as standard scores: the mean and the deviation of the
training data become part of the settings, so that an opened run answers in the units of its data.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.attention.table import nearest
from saccade.data import Batch, Example, Role
from saccade.data.guess import are_numbers
from saccade.data.item import FIRST, GRADED, JUDGED, SECOND
from saccade.errors import DataError, UsageError
from saccade.models.capabilities import Modality
from saccade.models.model import Model
from saccade.tasks import metrics
from saccade.tasks.hidden import is_hidden
from saccade.tasks.label import compares_texts, most_frequent_label
from saccade.tasks.metrics import Score
from saccade.tasks.needs import Needs
from saccade.tasks.task import Baseline, Choices, Item, Prompt, Task, Wrong, need_tokenizer, sources

GOLD = ("auto", "label", "number")
OF_LABELS = ("accuracy", "macro_f1", "f1")
OF_NUMBERS = ("pearson", "spearman", "mse")
SEVERAL = 10  # whole numbers up to so many different ones are classes
NEGATIVE = ("0", "-1", "no", "false", "negative", "different", "other", "none")


@dataclass(frozen=True)
class Config:
    gold: str = "auto"  # what is learnt: label, number, or what the data look like
    metric: str = "auto"  # what training watches: accuracy, macro_f1, f1; of numbers pearson, spearman, mse
    length: int = 256  # the most tokens that are read of both texts together
    pieces: str = "auto"  # of a new tokenizer: bpe, wordpiece, unigram, words, characters or bytes
    smoothing: float = 0.0  # of the labels
    threshold: float | None = None  # of two labels: how likely the sought one must be; f1 chooses it on held-out data
    centre: float = 0.0  # of the numbers: their mean, taken from the training data
    spread: float = 1.0  # their deviation, likewise
    augment: Literal["none", "swap", "order"] = "none"  # what joins the training pairs: twins, or the other order


class Pair(Task):
    name = "pair"
    aliases = ("nli", "paraphrase", "similarity")
    gold_roles = ("label",)
    counterfactual_roles, unchanged_gold = ("first", "second"), ("label",)
    min_examples = 10_000
    hub_pipeline = "text-classification"
    prompt = Prompt((FIRST, SECOND, JUDGED), "First: {first}\nSecond: {second}\nLabel: {label}\n\n")
    takes_two_texts = reads_sentences = True
    no_look_answer = "the model compares two texts, and only one was given"
    exchanged = ("first", "second")
    said = "what two texts are to each other: entailment, paraphrase, similarity"
    Config = Config
    needs = Needs(Modality.TEXT, head="label")
    frame = "both"
    sample = "pairs"

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        super().__init__(config, labels)
        if self.config.gold not in GOLD:
            raise UsageError(f"task.gold is {self.config.gold!r}; known are {', '.join(GOLD)}.")
        if self.config.threshold is not None and not 0 < self.config.threshold < 1:
            raise UsageError(f"task.threshold is {self.config.threshold:g}; a chance between 0 and 1 is needed.")
        if self.labels and self.config.gold == "auto":  # a model that was made elsewhere: one output is a number
            self.config = replace(self.config, gold="number" if len(self.labels) == 1 else "label")

    @classmethod
    def from_head(cls, model: Model) -> Self | None:
        return super().from_head(model) if compares_texts(model) else None

    @property
    def has_right_answers(self) -> bool:  # type: ignore[override]
        return not self.graded

    @property
    def predicts_number(self) -> bool:  # type: ignore[override]
        return self.graded

    @classmethod
    def matches(cls, examples: Sequence[Example]) -> bool:
        few = len({example["label"] for example in examples}) <= max(3, len(examples) / 4)
        return few and not are_numbers(examples, "first") and not are_numbers(examples, "second")

    def baseline(self, train: Sequence[Example]) -> Baseline | None:
        return None if self.graded or not train else most_frequent_label(train, self.labels)

    def comparable(self, answer: dict[str, Any], example: Example) -> Any:
        return self.shown(answer, example)["score"] if self.graded else answer["label"]

    @property
    def graded(self) -> bool:
        """Whether the gold is a number."""
        return self.config.gold == "number"

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (FIRST, SECOND, GRADED if self.graded else JUDGED)

    def fit(self, examples: Sequence[Example]) -> None:
        if self.config.gold == "auto":
            self.config = replace(self.config, gold="number" if _are_numbers(examples) else "label")
        known = OF_NUMBERS if self.graded else OF_LABELS
        if self.config.metric not in ("auto", *known):
            said = f"task.metric is {self.config.metric!r} for a gold that is a {self.config.gold}"
            raise UsageError(f"{said}; {nearest(self.config.metric, ['auto', *known])}")
        if self.graded:
            self._fit_numbers(examples)
        else:
            self._fit_labels(examples)

    def _fit_labels(self, examples: Sequence[Example]) -> None:
        self.labels = tuple(sorted({str(example["label"]) for example in examples}, key=_order))
        if len(self.labels) < 2:
            what = (
                f"all {len(examples)} pairs have the label {self.labels[0]!r}" if self.labels else "there are no pairs"
            )
            raise DataError(f"{what}, so there is nothing to learn", cure="give pairs of at least two labels")
        if self.config.threshold is not None and len(self.labels) != 2:
            raise UsageError(f"task.threshold is of two labels, and there are {len(self.labels)}; leave it out.")
        if self.config.metric == "f1" and len(self.labels) != 2:
            raise UsageError(
                f"task.metric is f1, which is of two labels, and there are {len(self.labels)}; use macro_f1."
            )

    def _fit_numbers(self, examples: Sequence[Example]) -> None:
        if self.config.threshold is not None:
            raise UsageError("task.threshold is of two labels, and the gold is a number; leave it out.")
        found = [_number(example) for example in examples]
        centre, spread = (fmean(found), pstdev(found)) if found else (0.0, 0.0)
        if not spread > 1e-12 * max(1.0, abs(centre)):
            what = f"all {len(found)} pairs have the number {found[0]:g}" if found else "there are no pairs"
            raise DataError(f"{what}, so there is nothing to learn", cure="give pairs of at least two numbers")
        self.config = replace(self.config, centre=centre, spread=spread)
        self.labels = ("score",)  # the one output
        said = f"the gold is a number, {min(found):g} to {max(found):g}, {centre:.3g} in the mean"
        self.noticed = (f"{said}; --task.gold label takes the numbers for classes",)

    def usual(self) -> str:
        return "transformer_reader"

    def choices(self, examples: Sequence[Example], pretrained: bool) -> Choices:
        if pretrained:
            return Choices("", train={"rate": 1e-4, "tokens": 2048, "epochs": 4})
        sizes = {"width": 128, "layers": 3, "inner": 256, "heads": 4}
        return Choices(self.usual(), sizes, {"rate": 1e-3, "tokens": 2048, "epochs": 10})

    def texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (example[name] for example in examples for name in ("first", "second"))

    def items(self, examples: Sequence[Example], model: Model) -> list[Item]:
        tokenizer, limit = need_tokenizer(model), min(self.config.length, model.limit or self.config.length)
        around = sum(tokenizer.encode("", "").special)
        if limit < around + 2:
            raise UsageError(
                f"{limit} tokens leave no room for two texts, as {around} go around them; raise --task.length."
            )
        number = {label: i for i, label in enumerate(self.labels)}
        out: list[Item] = []
        both = ([example[name] for example in examples] for name in ("first", "second"))
        for example, found in zip(examples, tokenizer.encode_each(*both, truncate=limit), strict=True):
            ids, segments = np.array(found.ids, np.int32), np.array(found.segments, np.int8)
            out.append(Item(example, ids, gold=self._gold(example, number), segments=segments))
        return out

    def batch(self, items: Sequence[Item]) -> Batch:
        gold = None
        if all(item.gold is not None for item in items):
            gold = torch.tensor([item.gold for item in items])
        return Batch(sources(items), gold=gold, rows=list(items))

    def count(self, batch: Batch) -> int:
        return len(batch.rows)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        scores, gold = model(batch), batch.gold
        assert gold is not None
        if self.graded:
            return (scores.squeeze(-1) - gold).square().sum()
        return F.cross_entropy(scores, gold, reduction="sum", label_smoothing=self.config.smoothing)

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        scores = model(batch).float()
        if self.graded:
            return [{"score": self.config.centre + self.config.spread * row[0]} for row in scores.tolist()]
        ranked = [
            sorted(zip(self.labels, row, strict=True), key=lambda pair: -pair[1]) for row in scores.softmax(-1).tolist()
        ]
        return [{"label": self._said(dict(best)), "scores": dict(best)} for best in ranked]

    def tune(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> None:
        """Where F1 is what counts, a half is seldom the chance from which on the sought label should be said."""
        self.tuned = {}
        gold = [str(example["label"]) for example in examples]
        if self.config.metric != "f1" or self.config.threshold is not None or not set(self.labels) <= set(gold):
            return
        sought = positive(self.labels)
        chances = [answer["scores"][sought] for answer in answers]
        found = metrics.f1_threshold(chances, [label == sought for label in gold])
        if 0 < found < 1:  # not where a model says nothing but noughts, or no numbers
            self.tuned = {"threshold": found}

    @property
    def threshold(self) -> float:
        """As it was tuned, as it was set, or a half."""
        return self.tuned.get("threshold", 0.5 if self.config.threshold is None else self.config.threshold)

    def _said(self, scores: dict[str, float]) -> str:
        """The likeliest label; of two, the sought one from the threshold on."""
        if len(self.labels) != 2:
            return max(scores, key=lambda label: scores[label])
        sought = positive(self.labels)
        return sought if scores[sought] >= self.threshold else next(label for label in self.labels if label != sought)

    def score(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[Score]:
        if self.graded:
            right, given = [_number(example) for example in examples], [answer["score"] for answer in answers]
            found = [metrics.pearson(right, given), metrics.spearman(right, given), metrics.mse(right, given)]
        else:
            gold = [str(example["label"]) for example in examples]
            said = [self._said(answer["scores"]) for answer in answers]
            found = [metrics.accuracy(gold, said), metrics.macro_f1(gold, said)]
            if len(self.labels) == 2:
                found.append(metrics.f1(gold, said, positive(self.labels)))
        return sorted(found, key=lambda score: score.name != self.config.metric)

    def hidden(self, examples: Sequence[Example]) -> list[bool]:
        """Of numbers -1 is one like others, unless there is nothing else."""
        golds = [example.values.get("label") for example in examples]
        if self.graded and any(gold is not None and float(gold) != -1 for gold in golds):
            return [gold is None for gold in golds]
        return [is_hidden(gold, () if self.graded else self.labels) for gold in golds]

    def confused(self, answer: dict[str, Any], example: Example) -> tuple[str, str] | None:
        return None if self.graded else (str(example["label"]), self._said(answer["scores"]))

    def wrong(self, answer: dict[str, Any], example: Example) -> Wrong | None:
        classes = self.confused(answer, example)
        if classes is None or classes[0] == classes[1]:
            return None
        sure = answer["scores"][classes[1]]
        row = {"first": example["first"], "second": example["second"]}
        return Wrong(row | {"gold": classes[0], "answer": classes[1], "sure": f"{sure:.0%}"}, sure)

    def told(self, shown: dict[str, Any]) -> str:
        if self.graded:
            return f"{shown['score']:.4g}"
        apart = len(self.labels) == 2 and self.threshold != 0.5  # then the less likely one may be the answer
        why = f" ({positive(self.labels)} from {self.threshold:.0%} on)" if apart else ""
        return f"{shown['label']} {shown['scores'][shown['label']]:.0%}{why}"

    def _gold(self, example: Example, number: dict[str, int]) -> float | int | None:
        """What the head should say; None where an example has no gold, -100 for a label that training does not have."""
        if "label" not in example:
            return None
        if self.graded:
            return (_number(example) - self.config.centre) / self.config.spread
        return number.get(str(example["label"]), -100)


def positive(labels: Sequence[str]) -> str:
    """Which of two labels is the one that is sought.

    >>> positive(("0", "1")), positive(("entailment", "not_entailment")), positive(("different", "same"))
    ('1', 'entailment', 'same')
    """
    sought = [
        label for label in labels if label.lower() not in NEGATIVE and not label.lower().startswith(("not", "non"))
    ]
    return sought[0] if len(sought) == 1 else labels[-1]


def _number(example: Example) -> float:
    """The gold as a number, or an error that says where it stands."""
    try:
        found = float(example["label"])
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise DataError(
            "a number is needed",
            file=example.file,
            line=example.line,
            column="label",
            value=example["label"],
            cure="correct it, or take the gold for classes with --task.gold label",
        )
    return found


def _are_numbers(examples: Sequence[Example]) -> bool:
    """Whether gold is a measure: all of it numbers, of which some are not whole or many are different."""
    try:
        found = {float(example["label"]) for example in examples}
    except ValueError:
        return False
    if not all(map(math.isfinite, found)):
        return False
    return len(found) > SEVERAL or any(value != int(value) for value in found)


def _order(label: str) -> tuple[bool, float, str]:
    """1, 2, 10, and then words in the order of the alphabet."""
    try:
        return False, float(label), label
    except ValueError:
        return True, 0.0, label
