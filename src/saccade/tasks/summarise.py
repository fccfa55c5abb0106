"""A long text in a few words: reports, articles, papers, dialogues, each with the summary that a person wrote.

It is `translate` with two lengths: what is read of a text may be long, and what is written of it is short.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from saccade.data import Example, Role
from saccade.data.item import ARTICLE, SUMMARY, several
from saccade.models.model import Model
from saccade.tasks.metrics import Score, rouge, suited
from saccade.tasks.task import Choices, Item, Wrong
from saccade.tasks.translate import Translate, check_beams


@dataclass(frozen=True)
class Config:
    length: int = 512  # the most tokens that are read of a text; what comes after them is cut off
    summary: int = 128  # the most tokens of a summary
    pieces: str = "auto"  # of a new tokenizer: bpe, wordpiece, unigram, words, characters or bytes
    smoothing: float = 0.1  # of the words
    metric: str = "rouge_2"  # what training watches: rouge_1, rouge_2 or rouge_l
    beams: int = 1  # that held-out texts are searched with when they are scored; more take longer

    def __post_init__(self) -> None:
        check_beams(self.beams)


class Summarise(Translate):
    name = "summarise"
    aliases = ("summarize",)
    verb = "summarise"
    no_swap = "the summary would have to change with its text, also where it says the same in other words"
    hub_pipeline = "summarization"
    watched = ("rouge_1", "rouge_2", "rouge_l")
    said = "a long text in a few words"
    Config = Config
    sample = "reports"

    @classmethod
    def from_head(cls, model: Model) -> None:
        """None: a model that came without a run is taken for a translator, which reads and writes alike."""

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (ARTICLE, SUMMARY)

    @classmethod
    def matches(cls, examples: Sequence[Example]) -> bool:
        """A long text and a short one."""
        read, told = (sum(len(several(e[name])[0].split()) for e in examples) for name in ("source", "target"))
        return read >= 30 * len(examples) and read >= 3 * told

    def fit(self, examples: Sequence[Example]) -> None:
        """Nothing: ROUGE chooses its words by the texts that it compares."""

    def choices(self, examples: Sequence[Example], pretrained: bool) -> Choices:
        if pretrained:
            return Choices("", train={"rate": 1e-4, "tokens": 4096, "epochs": 3})
        sizes = {"width": 256, "layers": 2, "inner": 1024}
        return Choices(self.usual(), sizes, {"rate": 1e-3, "tokens": 4096, "epochs": 10})

    def texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return super().texts(map(learnt, examples))

    def items(self, examples: Sequence[Example], model: Model) -> list[Item]:
        return super().items([learnt(example) for example in examples], model)

    def longest(self) -> int:
        return self.config.summary

    def score(self, answers: Sequence[str], examples: Sequence[Example]) -> list[Score]:
        gold = [several(example["target"]) for example in examples]  # the nearest of them counts
        split = suited(gold)
        found = [rouge(gold, answers, kind, split=split) for kind in ("1", "2", "L")]
        return sorted(found, key=lambda score: score.name != self.config.metric)

    def shown(self, answer: str, example: Example) -> dict[str, Any]:
        return {"summary": answer}

    def wrong(self, answer: str, example: Example) -> Wrong | None:
        gold = several(example["target"])
        if answer in gold:
            return None
        return Wrong({"source": example["source"], "gold": " / ".join(gold), "answer": answer})

    def told(self, shown: dict[str, Any]) -> str:
        return shown["summary"]


def learnt(example: Example) -> Example:
    """The example with the one summary that is learnt: the first, where it has several.

    >>> learnt(Example({"source": "It rained all day.", "target": ["Rain.", "A wet day."]}))["target"]
    'Rain.'
    """
    target = example.values.get("target", "")
    return example if isinstance(target, str) else replace(example, values={**example.values, "target": target[0]})
