"""What is in a picture, in words: one caption for each, learnt from pictures with one or several of them."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.attention.hard import draws, reinforce
from saccade.attention.normaliser import Hard
from saccade.data import Batch, Example, Image, Role, Text
from saccade.data.item import CAPTION, IMAGE
from saccade.decoding.beam import Hypothesis
from saccade.decoding.loop import follow, generate
from saccade.decoding.ways import Ways
from saccade.models.capabilities import Generates, Modality
from saccade.models.model import Model
from saccade.tasks import metrics
from saccade.tasks.label import picture_shape
from saccade.tasks.losses import written_loss
from saccade.tasks.metrics import Score
from saccade.tasks.needs import Needs
from saccade.tasks.task import Choices, Item, Task, Wrong, need_tokenizer
from saccade.vision.pixels import held, pixels

SIDES = (32, 64, 128)  # rows and columns of the pictures that a new model reads; larger ones are scaled down
CELLS = 4  # rows and columns of the grid that it looks at


@dataclass(frozen=True)
class Config:
    length: int = 64  # the most tokens of a caption
    pieces: str = "auto"  # of a new tokenizer: bpe, wordpiece, unigram, words, characters or bytes
    smoothing: float = 0.1  # of the words
    metric: str = "cider"  # what training watches: cider, bleu or exact_match


class Caption(Task):
    name = "caption"
    verb = "caption"
    gold_roles = ("caption",)
    no_swap = "the people in a picture stay who they are"
    hub_pipeline = "image-to-text"
    watched = ("cider", "bleu", "exact_match")
    said = "a picture in words"
    Config = Config
    needs = Needs(Modality.IMAGE, Generates.TARGET)
    frame = "t5"
    sample = "pictures"

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (IMAGE, CAPTION)

    def usual(self) -> str:
        return "captioner_transformer"

    def choices(self, examples: Sequence[Example], pretrained: bool) -> Choices:
        if pretrained:
            return Choices("", train={"rate": 3e-4, "rows": 64, "tokens": 4096, "epochs": 3})
        return Choices(
            self.usual(),
            new_sizes(examples[0]["image"])
            | {"width": 96, "layers": 1, "inner": 256, "block": "plain", "dropout": 0.0},
            {"rate": 2e-3, "rows": 32, "tokens": 4096, "epochs": 18},
        )

    def texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (text for example in examples for text in captions(example))

    def items(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """One for each caption, so that each is learnt; `gold` is its number, and a picture is asked about once, as 0."""
        shape = picture_shape(model)
        out: list[Item] = []
        pictures = iter(held([example["image"] for example in examples], shape))
        for start in range(0, len(examples), 1000):
            some = examples[start : start + 1000]
            targets = self._targets([text for example in some for text in captions(example)], model)
            for example in some:
                seen: Any = next(pictures)
                count = max(1, len(captions(example)))
                out += [Item(example, seen, target=next(targets, None), gold=number) for number in range(count)]
        return out

    def batch(self, items: Sequence[Item]) -> Batch:
        stacked = torch.from_numpy(np.stack([item.source for item in items]))
        target = None
        if all(item.target is not None for item in items):
            target = Text.of([item.target.tolist() for item in items if item.target is not None])
        return Batch(Image(stacked.float().div_(127.5).sub_(1.0)), target, rows=list(items))

    def count(self, batch: Batch) -> int:
        return sum(len(item.target) for item in batch.rows)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        if model.training and any(isinstance(module, Hard) for module in model.modules()):
            return rewarded_loss(model, batch, self.config.smoothing)
        return written_loss(model, batch, self.config.smoothing if model.training else 0.0)

    def answer(self, model: Model, batch: Batch) -> list[str | None]:
        """The caption of each picture; of a picture that stands there for another of its captions, nothing."""
        tokenizer = need_tokenizer(model).target
        assert isinstance(batch.source, Image)
        asked = [number for number, item in enumerate(batch.rows) if not item.gold]
        out: list[str | None] = [None] * len(batch.rows)
        if asked:
            seen = Batch(Image(batch.source.pixels[asked]))
            rows = generate(model, seen, stop=tokenizer.end, limit=_room(model, self.config.length))
            for number, row in zip(asked, rows, strict=True):
                out[number] = tokenizer.decode(row)
        return out

    def written(self, ways: Ways, batch: Batch) -> list[list[Hypothesis]]:
        assert isinstance(batch.source, Image)
        asked = [number for number, item in enumerate(batch.rows) if not item.gold]
        out: list[list[Hypothesis]] = [[] for _ in batch.rows]
        if asked:
            seen = Batch(Image(batch.source.pixels[asked]))
            for number, found in zip(asked, ways.write(seen, limit=self._limit(ways)), strict=True):
                out[number] = found
        return out

    def _limit(self, ways: Ways) -> int:
        """The most tokens of a caption: what the user says, as far as the model has places, or what is usual."""
        asked, most = ways.decoding.length, ways.model.limit
        if asked is None:
            return _room(ways.model, self.config.length)
        if most is None or asked <= most:
            return asked
        self.noticed = (f"--length {asked}: the model has places for {most} tokens, so no caption is longer.",)
        return most

    def gathered(self, answers: Sequence[str | None], items: Sequence[Item]) -> list[str]:
        return [said or "" for said, item in zip(answers, items, strict=True) if not item.gold]

    def score(self, answers: Sequence[str], examples: Sequence[Example]) -> list[Score]:
        """Over pictures: a picture that stands in several records has the captions of all of them."""
        said: dict[str, str] = {}
        gold: dict[str, list[str]] = {}
        for answer, example in zip(answers, examples, strict=True):
            key = _key(example["image"])
            said.setdefault(key, answer)
            gold.setdefault(key, []).extend(captions(example))
        right, given = list(gold.values()), list(said.values())
        found = [metrics.cider(right, given), metrics.bleu(right, given), metrics.exact_match(right, given)]
        return sorted(found, key=lambda score: score.name != self.config.metric)

    def shown(self, answer: str, example: Example) -> dict[str, Any]:
        where = {"image": example["image"]} if isinstance(example["image"], str) else {}
        return where | {"caption": answer}

    def wrong(self, answer: str, example: Example) -> Wrong | None:
        gold = captions(example)
        if answer in gold:
            return None
        picture = example["image"] if isinstance(example["image"], str) else f"{example.file}:{example.line}"
        return Wrong({"picture": picture, "gold": " / ".join(gold), "answer": answer})

    def told(self, shown: dict[str, Any]) -> str:
        return shown["caption"]

    def _targets(self, texts: Sequence[str], model: Model) -> Iterator[np.ndarray]:
        if not texts:
            return iter(())
        limit = _room(model, self.config.length)
        found = need_tokenizer(model).target.encode_each(list(texts), truncate=limit)
        return (np.array(one.ids, np.int32) for one in found)


def captions(example: Example) -> list[str]:
    """All captions of a picture; none where it has none.

    >>> captions(Example({"caption": "a dog"})), captions(Example({"caption": ["a dog", "a pup"]})), captions(Example({}))
    (['a dog'], ['a dog', 'a pup'], [])
    """
    found = example.values.get("caption", [])
    return [found] if isinstance(found, str) else list(found)


def new_sizes(picture: str | np.ndarray) -> dict[str, int]:
    """Channels, size and cells that suit a picture: the next size that holds it, in CELLS x CELLS cells."""
    channels, rows, columns = pixels(picture).shape
    size = next((side for side in SIDES if side >= max(rows, columns)), SIDES[-1])
    return {"channels": channels, "size": size, "cell": size // CELLS}


def rewarded_loss(model: Model, batch: Batch, smoothing: float) -> Tensor:
    """The summed loss of a model that draws where it looks: of its words, and of its draws by what the words gained.

    The reward of a caption is its mean log-probability, and the baseline the mean of the batch.
    """
    target = batch.target
    assert target is not None, "a batch to learn from has targets"
    with draws(model) as log:
        scores = follow(model, batch)
    real = target.real
    each = F.cross_entropy(scores.transpose(1, 2), target.tokens, reduction="none", label_smoothing=smoothing) * real
    reward = -(each.sum(1) / real.sum(1)).detach()
    return each.sum() + len(reward) * reinforce(log, reward, reward.mean())


def _room(model: Model, length: int) -> int:
    """Tokens of a caption: what was asked for, or what the model has places for."""
    return min(length, model.config.length)


def _key(picture: str | bytes | np.ndarray) -> str:
    if isinstance(picture, str):
        return picture
    if isinstance(picture, bytes):
        return hashlib.blake2b(picture, digest_size=12).hexdigest()
    return hashlib.blake2b(picture.tobytes(), digest_size=12).hexdigest() + str(picture.shape)
