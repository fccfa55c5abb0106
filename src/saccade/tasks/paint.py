"""A picture of what a text says: an autoencoder learns pictures as codes, then a painter learns to write codes after words.

Both learn in one run. In the first part of its steps the loss is that of the autoencoder, the squared error of pictures that
come out of it; from then on it stays as it is, and the loss is the painter's, nats per code. Which part a step belongs to is
a function of its number, so a run goes on where it stopped.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.data import Batch, Example, Role, Text
from saccade.data.item import CAPTION, IMAGE
from saccade.decoding.choose import greedy
from saccade.decoding.loop import Choose, follow, generate
from saccade.errors import UsageError
from saccade.models.capabilities import Generates, Modality
from saccade.models.model import Model
from saccade.models.painter import Painter
from saccade.tasks.caption import captions
from saccade.tasks.metrics import Score
from saccade.tasks.needs import Needs
from saccade.tasks.painting import Rows, from_png, need_painter, row_seeds, to_png
from saccade.tasks.task import Choices, Item, Task, encoded, sources
from saccade.vision.codes import Gumbel, Nearest
from saccade.vision.pixels import held, pixels

SIDES = (32, 64)  # rows and columns of what a new model paints; larger pictures are scaled down
CELLS = 8  # rows and columns of codes
MEAN = 256  # pictures whose mean colour is taken
COLDEST = 1 / 16  # the heat of a Gumbel choice when the autoencoder has learnt
REVIVE = 20  # steps, after which codes that are never chosen are moved
SCORES = 2**24  # of codes that exist at one time when answers are weighed


@dataclass(frozen=True)
class Config:
    length: int = 64  # the most tokens that are read of a text
    pieces: str = "auto"  # of a new tokenizer: bpe, wordpiece, unigram, words, characters or bytes
    first: float = 0.3  # of all steps, in which the autoencoder learns; the painter learns in the others
    temperature: float = 0.5  # of the draws; 0: the likeliest code each time
    seed: int = 0  # of the draws: another seed, another picture


class Asked(NamedTuple):
    """Which of an example's texts it is, and the picture that all of them speak of, where it is known."""

    number: int
    picture: np.ndarray | None  # bytes (channels, rows, columns)


class Paint(Task):
    name = "paint"
    aliases = ("text-to-image",)
    verb = "paint"
    gold_roles = ("image",)
    no_swap = "the people in a picture stay who they are"
    hub_pipeline = "text-to-image"
    lone = True  # codes that nobody uses are moved to what a whole step has seen
    tracks_dev_loss = False  # its loss is of two kinds, one after the other
    said = "a picture of what a text says"
    Config = Config
    needs = Needs(Modality.TEXT, Generates.IMAGE_CODES)
    frame = "none"
    sample = "shapes"

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        super().__init__(config, labels)
        if not 0 <= self.config.first < 1 or self.config.temperature < 0:
            raise UsageError(
                f"task.first is a share of the steps below 1, and task.temperature 0 or more; got {self.config.first} "
                f"and {self.config.temperature}."
            )
        self.drawing = False  # the autoencoder learns, not the painter
        self.revive = False

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (CAPTION, IMAGE)

    def fit(self, examples: Sequence[Example]) -> None:
        share = f"{self.config.first:.0%}"
        self.noticed = (f"the first {share} of the steps learn the codes of pictures, all others to paint with them",)

    def usual(self) -> str:
        return "painter"

    def choices(self, examples: Sequence[Example], pretrained: bool) -> Choices:
        if pretrained:
            return Choices("", train={"rate": 3e-4, "rows": 32, "tokens": 4096, "epochs": 5})
        channels, rows, columns = pixels(examples[0]["image"]).shape
        size = next((side for side in SIDES if side >= max(rows, columns)), SIDES[-1])
        sizes = {"channels": channels, "size": size, "cell": size // CELLS, "codes": 512, "code_width": 16}
        sizes |= {"choice": "nearest", "width": 128, "layers": 3, "inner": 512, "dropout": 0.0}
        return Choices(self.usual(), sizes, {"rate": 2e-3, "rows": 16, "tokens": 4096, "epochs": 20})

    def teach(self, model: Model, examples: Sequence[Example]) -> None:
        """Let the autoencoder begin with pictures of the mean colour: from grey its output soon stands still at white."""
        body, some = need_painter(model), examples[:: max(1, len(examples) // MEAN)]
        shape = (model.config.channels, None, None)
        colour = np.mean([pixels(example["image"], shape).mean((1, 2)) for example in some], axis=0) / 255
        last = body.autoencoder.up[-1]
        assert isinstance(last, nn.Conv2d)
        assert last.bias is not None
        last.bias.data.copy_(torch.logit(torch.from_numpy(colour), eps=0.01))

    def onward(self, model: Model, done: int, horizon: int) -> None:
        last = round(self.config.first * horizon)
        self.drawing = done < last
        choice = need_painter(model).autoencoder.choice
        if isinstance(choice, Gumbel) and self.drawing:
            choice.heat = COLDEST ** (done / last)
        self.revive = self.drawing and isinstance(choice, Nearest) and done % REVIVE == 0

    def texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (text for example in examples for text in captions(example))

    def items(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """One for each text, so that each is learnt; of one example only the first is painted."""
        body, sizes = need_painter(model), model.config
        read = encoded([text for e in examples for text in captions(e)], model, min(self.config.length, sizes.length))
        shape = (sizes.channels, body.side * sizes.cell, body.side * sizes.cell)
        out: list[Item] = []
        pictures: Iterator[Any] = iter(held([e["image"] for e in examples if "image" in e], shape))
        for example in examples:
            seen = next(pictures) if "image" in example else None
            for number in range(len(captions(example))):
                out.append(Item(example, next(read)[0], gold=Asked(number, seen)))
        return out

    def batch(self, items: Sequence[Item]) -> Batch:
        gold = None
        if all(item.gold.picture is not None for item in items):
            gold = torch.from_numpy(np.stack([item.gold.picture for item in items])).float().div_(255)
        return Batch(sources(items), gold=gold, rows=list(items))

    def count(self, batch: Batch) -> int:
        return len(batch.rows)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        body, seen = need_painter(model), batch.gold
        assert seen is not None, "a batch to learn from has pictures"
        if self.drawing:
            return self._drawn(body, seen) * len(seen)
        body.autoencoder.eval()  # it has learnt: its norms stay as they are too
        target = body.target(seen)
        scores = follow(model, Batch(batch.source, target))
        return F.cross_entropy(scores.flatten(0, 1), target.tokens.flatten(), reduction="sum") / body.cells

    def _drawn(self, body: Painter, seen: Tensor) -> Tensor:
        """What the autoencoder loses for each code: the squared error of the numbers that it stands for, and its choice.

        The error counts in units of the pictures' variance. Where most of a picture is ground the variance is small, and the
        cost of choosing would otherwise outweigh the picture.
        """
        if self.revive:
            assert isinstance(body.autoencoder.choice, Nearest)
            with torch.no_grad():
                body.autoencoder.choice.revive(body.autoencoder.features(seen))
        made, loss = body.autoencoder(seen)
        error = F.mse_loss(made, seen)
        return (loss - error + error / seen.var().clamp(min=1e-6)) * seen[0].numel() / body.cells

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any] | None]:
        """A picture for each text, as PNG in base64; where the true picture is there, what it cost and how far off it is."""
        body = need_painter(model)
        asked = [number for number, item in enumerate(batch.rows) if not item.gold.number]
        out: list[dict[str, Any] | None] = [None] * len(batch.rows)
        if not asked:
            return out
        assert isinstance(batch.source, Text)
        text = Text(batch.source.tokens[asked], None if batch.source.keep is None else batch.source.keep[asked])
        rows = generate(model, Batch(text), self._choose(text), stop=None, limit=body.cells)
        weighed = [{}] * len(asked) if batch.gold is None else self._weighed(model, text, batch.gold[asked])
        for number, picture, cost in zip(asked, body.picture(rows), weighed, strict=True):
            out[number] = {"png": to_png(picture)} | cost
        return out

    def _choose(self, text: Text) -> Choose:
        """Draws that depend on the seed and on a row's own words, not on what is painted beside it."""
        temperature = self.config.temperature
        return Rows(row_seeds(text, self.config.seed), temperature=temperature) if temperature else greedy

    def _weighed(self, model: Model, text: Text, seen: Tensor) -> list[dict[str, float]]:
        """Of each true picture: its cost in nats, its codes, how far the autoencoder is off, and how far the painter."""
        body = need_painter(model)
        out: list[dict[str, float]] = []
        some = max(1, SCORES // (body.cells * body.head.score.out_features))
        for start in range(0, len(seen), some):
            part, true = slice(start, start + some), seen[start : start + some]
            target = body.target(true)
            rows = Text(text.tokens[part], None if text.keep is None else text.keep[part])
            scores = follow(model, Batch(rows, target))
            nats = F.cross_entropy(scores.transpose(1, 2), target.tokens, reduction="none").sum(1)
            off = [
                (body.picture(codes.tolist()) - true).square().mean((1, 2, 3)).tolist()
                for codes in (target.tokens, scores.argmax(-1))
            ]
            for cost, rebuilt, error in zip(nats.tolist(), *off, strict=True):
                out.append({"nats": cost, "codes": body.cells, "rebuilt": rebuilt, "error": error})
        return out

    def gathered(self, answers: Sequence[dict[str, Any] | None], items: Sequence[Item]) -> list[dict[str, Any]]:
        return [answer for answer in answers if answer is not None]

    def score(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[Score]:
        """How far off the painter is; of the picture world also whether a picture shows what was asked for."""
        from saccade.tasks.metrics.painted import mean, shows  # which brings the picture world, needed by nobody else

        found = [mean(name, [answer[name] for answer in answers]) for name in ("error", "rebuilt")]
        found.append(mean("nats_per_code", [answer["nats"] / answer["codes"] for answer in answers]))
        # a text is painted the same each time, so it counts once, however many pictures it stands for
        painted = {captions(example)[0]: answer["png"] for answer, example in zip(answers, examples, strict=True)}
        return found + shows(list(painted), [from_png(png) for png in painted.values()])

    def shown(self, answer: dict[str, Any], example: Example) -> dict[str, Any]:
        return {"text": captions(example)[0], "png": answer["png"]}

    def told(self, shown: dict[str, Any]) -> str:
        picture = from_png(shown["png"])
        return f"{shown['text']}: {picture.shape[1]} x {picture.shape[0]} pixels; saccade paint writes a file"
