"""A task and a family from outside of the package: each is a class and a line in its table, and every command knows them."""

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from saccade import metrics
from saccade.attention import FULL, ScaledDot
from saccade.cli import main
from saccade.data import Batch
from saccade.data.example import Role
from saccade.models import registry as families
from saccade.models.capabilities import ENCODER, Modality
from saccade.models.family import Family, HeadSpec
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.feedforward import FeedForward
from saccade.parts.heads import ClassificationHead
from saccade.parts.layer import make_layer
from saccade.parts.multihead_attention import Attention
from saccade.parts.position import Sinusoidal
from saccade.parts.stack import Stack
from saccade.tasks import registry as tasks
from saccade.tasks.base import Defaults, Item, Task, encode_texts, pad_sources
from saccade.tasks.interface.predictions import Prediction
from saccade.tasks.needs import Needs


@dataclass(frozen=True)
class TinyConfig:
    vocab: int = 100
    width: int = 16


class Tiny(nn.Module):
    """One layer of attention."""

    def __init__(self, config):
        super().__init__()
        self.width = config.width
        self.words = TokenEmbedding(config.vocab, config.width)
        one = make_layer(
            Attention(config.width, 2, ScaledDot()),
            FeedForward(config.width, 32),
            width=config.width,
            norm=nn.LayerNorm,
        )
        self.stack = Stack([one], FULL, Sinusoidal(config.width))

    def forward(self, batch):
        return self.stack(self.words(batch.source.tokens), batch.source.layout)


FAMILY = Family(
    name="tiny",
    description="one layer of attention",
    config_class=TinyConfig,
    build=Tiny,
    capabilities=lambda config: ENCODER,
    heads={"label": HeadSpec(lambda config, body, labels: ClassificationHead(body.width, labels))},
)


@dataclass(frozen=True)
class UrgencyConfig:
    max_tokens: int = 64
    tokenizer: str = "words"


@dataclass(frozen=True)
class UrgencyPrediction(Prediction):
    urgent: str

    def __str__(self):
        return self.urgent


class Urgency(Task):
    name = "urgency"
    aliases = ("triage",)
    verb = "triage"
    description = "whether a message can wait"
    Config = UrgencyConfig
    needs = Needs(Modality.TEXT, head="label")
    sample = "topics"
    gold_roles = ("urgent",)
    counterfactual_roles, preserved_gold_roles, has_right_answers = ("message",), ("urgent",), True
    token_template = "bos_eos"
    hub_pipeline = "text-classification"
    reads_sentences = True

    def roles(self, paths):
        return (Role("message", "text", ("message",)), Role("urgent", "label", ("urgent",)))

    def fit(self, examples):
        self.labels = tuple(sorted({example["urgent"] for example in examples}))

    def default_family(self):
        return "tiny"

    def defaults(self, examples, pretrained):
        return Defaults("tiny", {}, {"lr": 1e-2, "batch_tokens": 512, "epochs": 2})

    def tokenizer_texts(self, examples):
        return (example["message"] for example in examples)

    def encode(self, examples, model):
        found = encode_texts([example["message"] for example in examples], model, self.config.max_tokens)
        gold = [self.labels.index(example["urgent"]) if "urgent" in example else None for example in examples]
        return [
            Item(example, ids, gold=one, segment_ids=segments)
            for example, one, (ids, segments, _) in zip(examples, gold, found, strict=True)
        ]

    def batch(self, items):
        gold = None if any(item.gold is None for item in items) else torch.tensor([item.gold for item in items])
        return Batch(pad_sources(items), gold=gold, items=list(items))

    def count_targets(self, batch):
        return len(batch.items)

    def loss(self, model, batch):
        return F.cross_entropy(model(batch), batch.gold, reduction="sum")

    def answer(self, model, batch):
        return [{"urgent": self.labels[number]} for number in model(batch).argmax(-1).tolist()]

    def score(self, answers, examples):
        return [metrics.accuracy([e["urgent"] for e in examples], [a["urgent"] for a in answers])]

    def to_prediction(self, answer, example):
        return UrgencyPrediction(answer["urgent"])


@pytest.fixture
def registered():
    """The one line for each."""
    families.FAMILIES.append(FAMILY)
    tasks.TASKS.insert(0, Urgency)
    yield
    families.FAMILIES.remove(FAMILY)
    tasks.TASKS.remove(Urgency)


def test_every_command_knows_a_task_and_a_family_of_one_line_each(registered, tmp_path, capsys):
    file, out = tmp_path / "messages.csv", str(tmp_path / "run")
    words = [
        "the pump leaks",
        "nothing to report",
        "he is in the hall",
        "she called again",
        "please answer when you can",
    ]
    rows = [f"{words[i % 5]} number {i % 7},{'yes' if i % 5 < 2 else 'no'}" for i in range(60)]
    file.write_text("message,urgent\n" + "\n".join(rows) + "\n")

    def said(*command):
        capsys.readouterr()
        code = main(list(command))
        found = capsys.readouterr()
        assert code == 0, (command, found.err)
        return found.out

    assert "task: urgency (inferred)" in said("data", "check", str(file))
    assert "--model.width" in said("train", "urgency", "--help")
    assert "new tiny model with " in said("train", "triage", "--data", str(file), "--out", out)
    assert said("triage", out, "the pump leaks number 3").strip() in ("yes", "no")
    assert said("predict", out, "the pump leaks number 3").strip() in ("yes", "no")
    assert "accuracy" in said("evaluate", out)
    assert "layer" in said("look", out, "the pump leaks").lower()
    assert "counterfactual" in said("audit", out)
    said("card", out)
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert 'pipeline_tag: "text-classification"' in card
    assert "urgency: whether a message can wait" in card
    assert "tiny" in said("models")


def test_what_does_not_fit_is_refused_for_them_too(registered, capsys):
    assert main(["train", "urgency", "--family", "gpt2"]) == 2
    assert "urgency needs a model that encodes a text" in capsys.readouterr().err
    assert main(["train", "translate", "--family", "tiny"]) == 2
    assert "tiny encodes a text" in capsys.readouterr().err
