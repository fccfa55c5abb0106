"""One text into another: languages, dates, numbers; whatever stands in pairs."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from saccade.data import Batch, Example, Role, Text
from saccade.data.guess import are_numbers
from saccade.data.item import SOURCE, TARGET
from saccade.decoding.beam import Beams, Hypothesis, search
from saccade.decoding.bounds import Bounds
from saccade.decoding.loop import generate
from saccade.decoding.ways import Ways, named_only
from saccade.errors import UsageError
from saccade.models.capabilities import Generates, Modality
from saccade.models.model import Model
from saccade.tasks import metrics
from saccade.tasks.losses import written_loss
from saccade.tasks.metrics import Score
from saccade.tasks.needs import Needs
from saccade.tasks.task import Choices, Item, Prompt, Task, Wrong, encoded, need_tokenizer, sources

MAX_TARGETS_EXAMINED = 2_000  # for their script


@dataclass(frozen=True)
class Config:
    length: int = 256  # the most tokens of a text, on either side
    pieces: str = "auto"  # of a new tokenizer: bpe, wordpiece, unigram, words, characters or bytes
    smoothing: float = 0.1  # of the words
    metric: str = "bleu"  # what training watches: bleu, chrf or exact_match
    beams: int = 1  # that held-out texts are searched with when they are scored; more take longer
    bleu_tokenizer: str = "auto"  # how BLEU splits words: 13a, intl, zh, ja-mecab, ko-mecab, char; auto: by the script

    def __post_init__(self) -> None:
        check_beams(self.beams)
        if self.bleu_tokenizer != "auto":
            metrics.check_bleu_tokenizer(self.bleu_tokenizer)


class Translate(Task):
    name = "translate"
    verb = "translate"
    gold_roles = ("target",)
    no_swap = "the translation would have to change with its source, and no list of words knows how"
    hub_pipeline = "translation"
    prompt = Prompt((SOURCE, TARGET), "{source} => {target}\n")
    reads_sentences = True
    watched = ("bleu", "chrf", "exact_match")
    said = "one text into another: a language, a date, a number"
    Config = Config
    needs = Needs(Modality.TEXT, Generates.TARGET)
    frame = "t5"
    sample = "dates"

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (SOURCE, TARGET)

    @classmethod
    def matches(cls, examples: Sequence[Example]) -> bool:
        return not are_numbers(examples, "source")

    def name_texts(self, *texts: str) -> dict[str, Any]:
        return dict(zip(("source", "target"), texts, strict=False))  # a second text is what the model is to write

    def fit(self, examples: Sequence[Example]) -> None:
        """Settle BLEU's tokenizer, so that a run is scored by the same one wherever it is opened."""
        if self.config.bleu_tokenizer == "auto":
            chosen = metrics.bleu_tokenizer(example["target"] for example in examples[:MAX_TARGETS_EXAMINED])
            self.config = replace(self.config, bleu_tokenizer=chosen)

    def usual(self) -> str:
        return "transformer"

    def choices(self, examples: Sequence[Example], pretrained: bool) -> Choices:
        if pretrained:
            return Choices("", train={"rate": 1e-4, "tokens": 2048, "epochs": 3})
        return Choices(
            self.usual(), {"width": 256, "layers": 3, "inner": 1024}, {"rate": 1e-3, "tokens": 4096, "epochs": 20}
        )

    def longest(self) -> int:
        """The most tokens that are written."""
        return self.config.length

    def texts(self, examples: Iterable[Example]) -> Iterator[str]:
        for example in examples:
            yield example["source"]
            if "target" in example:
                yield example["target"]

    def items(self, examples: Sequence[Example], model: Model) -> list[Item]:
        read = encoded([example["source"] for example in examples], model, self.config.length)
        targets: Iterable[Any] = [None] * len(examples)
        if examples and "target" in examples[0]:
            found = encoded([example["target"] for example in examples], model, self.longest(), target=True)
            targets = (ids for ids, _, _ in found)
        return [
            Item(example, ids, target=target)
            for example, (ids, _, _), target in zip(examples, read, targets, strict=True)
        ]

    def batch(self, items: Sequence[Item]) -> Batch:
        target = None
        if all(item.target is not None for item in items):
            target = Text.of([item.target.tolist() for item in items if item.target is not None])
        return Batch(sources(items), target, rows=list(items))

    def count(self, batch: Batch) -> int:
        return sum(len(item.target) for item in batch.rows)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        return written_loss(model, batch, self.config.smoothing if model.training else 0.0)

    def answer(self, model: Model, batch: Batch) -> list[str]:
        tokenizer = need_tokenizer(model).target
        stop, rules, beams = tokenizer.end, named_only(model, tokenizer), self.config.beams

        def write(some: Batch, room: int) -> list[list[int]]:
            if beams == 1:
                return generate(model, some, stop=stop, limit=room, rules=rules)
            return [row[0].tokens for row in search(model, some, Bounds(stop, room, rules), Beams(beams))]

        return [tokenizer.decode(row) for row in self._in_rooms(model, batch, None, write)]

    def written(self, ways: Ways, batch: Batch) -> list[list[Hypothesis]]:
        write = lambda some, room: ways.write(some, limit=room)
        return self._in_rooms(ways.model, batch, ways.decoding.length, write)

    def _in_rooms(
        self, model: Model, batch: Batch, length: int | None, write: Callable[[Batch, int], list[Any]]
    ) -> list[Any]:
        """What is written for each row; those with room for equally much go together, so that neighbours change nothing."""
        source = batch.source
        assert isinstance(source, Text)
        rooms = [min(length or self._room(size), model.limit or sys.maxsize) for size in source.real.sum(1).tolist()]
        out: list[Any] = [None] * len(rooms)
        for room in dict.fromkeys(rooms):
            numbers = [number for number, own in enumerate(rooms) if own == room]
            for number, found in zip(numbers, write(Batch(_some(source, numbers)), room), strict=True):
                out[number] = found
        return out

    def _room(self, size: int) -> int:
        """The most tokens of a target, if nobody says: twice the source and 20, in steps that many rows share."""
        return min(max(64, 1 << (2 * size + 19).bit_length()), self.longest())

    def score(self, answers: Sequence[str], examples: Sequence[Example]) -> list[Score]:
        gold = [example["target"] for example in examples]
        bleu = metrics.bleu(gold, answers, tokenizer=self.config.bleu_tokenizer)
        found = [bleu, metrics.chrf(gold, answers), metrics.exact_match(gold, answers)]
        return sorted(found, key=lambda score: score.name != self.config.metric)

    def shown(self, answer: str, example: Example) -> dict[str, Any]:
        return {"translation": answer}

    def wrong(self, answer: str, example: Example) -> Wrong | None:
        if answer == example["target"]:
            return None
        return Wrong({"source": example["source"], "gold": example["target"], "answer": answer})

    def told(self, shown: dict[str, Any]) -> str:
        return shown["translation"]


def check_beams(beams: int) -> None:
    if beams < 1:
        raise UsageError(f"task.beams is {beams}; 1 or more are needed, and 1 takes the best word each time.")


def _some(source: Text, numbers: Sequence[int]) -> Text:
    """Some rows of the texts, without the padding that only others need."""
    if source.keep is None or len(numbers) == len(source.tokens):
        return source
    keep = source.keep[list(numbers)]
    used = keep.any(0)
    return Text(source.tokens[list(numbers)][:, used], None if bool(keep[:, used].all()) else keep[:, used])
