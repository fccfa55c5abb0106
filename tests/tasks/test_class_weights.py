"""Class weights are those of scikit-learn, and the loss with them is a plain loop over the formula."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

import saccade
from saccade.data import Batch, Example, Text
from saccade.errors import UsageError
from saccade.tasks.label import Config as LabelConfig
from saccade.tasks.label import Label
from saccade.tasks.pair import Config as PairConfig
from saccade.tasks.pair import Pair
from saccade.tasks.tag import IGNORE_INDEX, Tag
from saccade.tasks.tag import Config as TagConfig

GOLD = ["b"] * 11 + ["a"] * 3 + ["c"] * 5


def labeled(labels):
    return [Example({"text": f"text {i}", "label": label}) for i, label in enumerate(labels)]


def paired(labels):
    return [Example({"first": f"text {i}", "second": "other", "label": label}) for i, label in enumerate(labels)]


def fixed(logits):
    """A model that gives these logits, whatever it reads."""

    class Fixed(torch.nn.Module):
        def forward(self, batch):
            return logits

    return Fixed().eval()


@pytest.mark.parametrize(("kind", "config", "make"), [(Label, LabelConfig, labeled), (Pair, PairConfig, paired)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("setting", ["balanced", "a=4,c=0.5"])
def test_the_loss_is_a_loop_over_the_formula(kind, config, make, smoothing, setting):
    task = kind(config(class_weights=setting, label_smoothing=smoothing))
    task.fit(make(GOLD))
    weights = {"a": 4.0, "b": 1.0, "c": 0.5}
    if setting == "balanced":
        theirs = compute_class_weight("balanced", classes=np.array(["a", "b", "c"]), y=GOLD)
        weights = dict(zip("abc", theirs.tolist(), strict=True))
        assert sum(weights[label] for label in GOLD) == pytest.approx(len(GOLD))
    logits = torch.randn(7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    gold = [0, 2, 1, 1, 0, 2, 2]
    total = 0.0
    for row, target in zip(logits.tolist(), gold, strict=True):
        log_sum = math.log(sum(map(math.exp, row)))
        nll = [log_sum - x for x in row]
        total += (1 - smoothing) * weights["abc"[target]] * nll[target]
        total += smoothing / 3 * sum(weights["abc"[i]] * nll[i] for i in range(3))
    batch = Batch(Text(torch.zeros(7, 1, dtype=torch.long)), gold=torch.tensor(gold))
    assert float(task.loss(fixed(logits), batch)) == pytest.approx(total, rel=1e-12)


def test_several_labels_weigh_the_examples_that_have_them():
    examples = [Example({"text": "t", "labels": labels}) for labels in (["a", "b"], ["a"], ["a"], [], ["a"])]
    task = Label(LabelConfig(multi_label=True, class_weights="balanced"))
    task.fit(examples)
    assert task.class_weights == (0.25, 4.0)
    logits = torch.randn(5, 2, generator=torch.Generator().manual_seed(2), dtype=torch.double)
    gold = torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    total = 0.0
    for row, targets in zip(logits.tolist(), gold.tolist(), strict=True):
        for x, target, weight in zip(row, targets, (0.25, 4.0), strict=True):
            probability = 1 / (1 + math.exp(-x))
            total -= weight * target * math.log(probability) + (1 - target) * math.log(1 - probability)
    batch = Batch(Text(torch.zeros(5, 1, dtype=torch.long)), gold=gold)
    assert float(task.loss(fixed(logits), batch)) == pytest.approx(total, rel=1e-12)


def test_tags_are_weighed_by_the_words_that_have_them():
    tags = [["O", "O", "B-PER", "I-PER"], ["O", "B-LOC"], ["O", "O", "O"]]
    task = Tag(TagConfig(class_weights="balanced"))
    task.fit([Example({"words": ["w"] * len(row), "tags": row}) for row in tags])
    counts = Counter(tag for row in tags for tag in row)
    present = sorted(counts)
    theirs = compute_class_weight("balanced", classes=np.array(present), y=[t for row in tags for t in row])
    expected = dict(zip(present, theirs.tolist(), strict=True)) | {"I-LOC": 1.0}  # never in training
    assert dict(zip(task.labels, task.class_weights, strict=True)) == pytest.approx(expected)
    logits = torch.randn(1, 4, 5, generator=torch.Generator().manual_seed(3), dtype=torch.double)
    gold = torch.tensor([[0, IGNORE_INDEX, 1, 3]])
    nll = -logits.log_softmax(-1)[0]
    total = sum(expected[task.labels[t]] * float(nll[i, t]) for i, t in enumerate(gold[0].tolist()) if t >= 0)
    batch = Batch(Text(torch.zeros(1, 4, dtype=torch.long)), gold=gold)
    assert float(task.loss(fixed(logits), batch)) == pytest.approx(total, rel=1e-12)


def test_labels_with_a_comma_or_an_equals_sign_can_be_balanced_and_the_others_written():
    task = Label(LabelConfig(class_weights="x=y=3"))
    task.fit(labeled(["x=y", "z"] * 3))
    assert task.class_weights == (3.0, 1.0)


@pytest.mark.parametrize("setting", ["balance", "a", "a=", "a=0", "a=-1", "=2", "a=nan", "a=inf", "a=1,,b=2"])
def test_what_is_no_weight_is_refused(setting):
    with pytest.raises(UsageError, match="write balanced, or a weight above 0 for labels, such as spam=5,ham=1"):
        Label(LabelConfig(class_weights=setting)).fit(labeled(GOLD))


def test_a_weight_for_an_unknown_label_names_the_nearest_and_numbers_have_none():
    with pytest.raises(UsageError, match=r"weight for 'spa'.*spam"):
        Label(LabelConfig(class_weights="spa=5")).fit(labeled(["ham", "spam"] * 3))
    with pytest.raises(UsageError, match="needs labels, but the gold is a number"):
        Pair(PairConfig(class_weights="balanced", target_type="number")).fit(paired(["0.5", "1.5"]))


def test_training_with_balanced_weights_finds_the_rare_label(tmp_path):
    """By eye: with 3 % of a label that no word tells apart, only weights make a model predict it at all."""
    rows = [{"text": f"red {i % 40}", "label": "rare" if i % 33 == 0 else "common"} for i in range(330)]
    found = []
    for setting in ("none", "balanced"):
        run = saccade.train(
            "label",
            data=rows,
            out=tmp_path / setting,
            task={"class_weights": setting},
            train={"epochs": 6, "lr": 3e-3},
            architecture={"width": 8, "layers": 1, "heads": 2},
        )
        assert run.settings["task"]["class_weights"] == setting
        found.append(run.predict("red").probabilities["rare"])
    assert found[0] < 0.2
    assert 0.35 < found[1] < 0.65


@pytest.mark.parametrize(("kind", "config", "make"), [(Label, LabelConfig, labeled), (Pair, PairConfig, paired)])
def test_a_dictionary_of_weights_is_the_same_setting(kind, config, make):
    weighted = []
    for setting in ({"a": 4, "c": 0.5}, "a=4,c=0.5"):
        task = kind(config(class_weights=setting))
        task.fit(make(GOLD))
        assert isinstance(task.config.class_weights, str)  # as config.toml stores it
        weighted.append(task.class_weights)
    assert weighted[0] == weighted[1] == (4.0, 1.0, 0.5)
    assert TagConfig(class_weights={"B-PER": 2.0}).class_weights == "B-PER=2.0"
    with pytest.raises(UsageError, match="weight above 0 for labels"):
        kind(config(class_weights={"a": "many"})).fit(make(GOLD))


def test_a_dictionary_of_weights_trains_stores_and_resumes(tmp_path):
    rows = [{"text": f"red {i % 7}", "label": "a, b" if i % 3 else "ham"} for i in range(60)]
    for _ in range(2):  # the second call finds the finished run and the same settings
        run = saccade.train(
            "label", data=rows, out=tmp_path / "run", task={"class_weights": {"a, b": 3.0}}, train={"max_steps": 2},
            architecture={"width": 8, "layers": 1, "heads": 2},
        )  # fmt: skip
    assert run.task.config.class_weights == '{"a, b": 3.0}'
