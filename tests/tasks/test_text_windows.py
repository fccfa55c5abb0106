"""Windows of a running text: each token is scored once, with the context and the look back that the settings say."""

import math

import pytest
import torch

from saccade.cli.commands.evaluate import parse_overrides
from saccade.data import Batch, Example, Text
from saccade.models.build import new
from saccade.models.families import transformer
from saccade.tasks.label import Label
from saccade.tasks.language import Language
from saccade.tasks.neural_cache import INTERPOLATION_WEIGHTS, INVERSE_TEMPERATURES, neural_cache_nll
from saccade.tasks.predict import evaluate, predict
from saccade.tasks.span import Span
from saccade.text import train_tokenizer as train_tokenizer

TEXT = "the cat sat on the mat and the dog lay by the door while rain fell on the old red roof " * 3


@pytest.fixture(scope="module")
def writer():
    torch.manual_seed(1)
    tokenizer = train_tokenizer([TEXT], "characters", None, token_template="none")
    config = transformer.Config(vocab=tokenizer.vocab, width=16, layers=2, heads=2, ffn_width=16, dropout=0.0)
    model = new("transformer_lm", config).eval().double()
    model.tokenizer = tokenizer
    return model


def nats(writer, before: list[int], token: int) -> float:
    """Of one token after others, straight from the scores."""
    state, text = writer.body.start(Batch(Text.pad([before])))
    return -float(writer.body.step(text, state)[0, -1].log_softmax(-1)[token])


@torch.no_grad()
@pytest.mark.parametrize("context", [0, 1, 6, 11])
@pytest.mark.parametrize("size", [2, 12, 13, 14, 60, 61])
def test_each_token_is_scored_once_with_its_context(writer, context, size):
    length = 12
    task = Language(Language.Config(max_tokens=length, eval_overlap=context))
    text = TEXT[:size]
    ids = writer.tokenizer.encode(text, add_special_tokens=False).ids
    items = task.encode([Example({"text": text})], writer)
    answers = [answer for item in items for answer in task.answer(writer, task.batch([item]))]
    assert sum(answer["tokens"] for answer in answers) == len(ids) - 1
    assert sum(answer["bytes"] for answer in answers) == len(text) - 1
    assert all(len(item.source) <= length for item in items)
    place, wanted = 1, 0.0
    for item, answer in zip(items, answers, strict=True):
        begin = place - 1 - (context if place > 1 else 0)  # the window's first token
        assert list(item.source[:3]) == ids[begin : begin + len(item.source[:3])]
        wanted = sum(nats(writer, ids[begin:at], ids[at]) for at in range(place, place + answer["tokens"]))
        assert answer["nats"] == pytest.approx(wanted, abs=1e-6)
        place += answer["tokens"]


def test_a_context_must_leave_something_to_score(writer):
    with pytest.raises(ValueError, match=r"task\.eval_overlap is 12; it must be below the window size of 12 tokens"):
        Language(Language.Config(max_tokens=12, eval_overlap=12)).encode([Example({"text": TEXT})], writer)


def looked_back(x, gold, nats, size: int) -> list[float]:
    """By the formula, a token and a forecaster at a time; then Bayes' rule over the forecasters."""
    grid = [(share, sharp) for share in INTERPOLATION_WEIGHTS for sharp in INVERSE_TEMPERATURES]
    trust = [1 / len(grid)] * len(grid)
    costs = []
    for t in range(len(gold)):
        chances = []
        for share, sharp in grid:
            past = range(max(0, t - size), t)
            weights = [math.exp(sharp * float(torch.cosine_similarity(x[t], x[i], dim=0))) for i in past]
            again = sum(w for w, i in zip(weights, past, strict=True) if gold[i] == gold[t]) / (sum(weights) or 1.0)
            chances.append((1 - share) * math.exp(-float(nats[t])) + share * again)
        chance = sum(a * b for a, b in zip(trust, chances, strict=True))
        trust = [a * b / chance for a, b in zip(trust, chances, strict=True)]
        costs.append(-math.log(chance))
    return costs


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_looking_back_is_its_formula(size, monkeypatch):
    monkeypatch.setattr("saccade.tasks.neural_cache.MAX_TOKENS_PER_CHUNK", 16)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(50, 6, generator=draw)
    gold = torch.randint(0, 5, (50,), generator=draw)
    nats = torch.rand(50, generator=draw) * 3
    found = neural_cache_nll(x, gold, nats, size)
    assert found.tolist() == pytest.approx(looked_back(x, gold, nats, size), abs=1e-4)


def test_looking_back_is_a_distribution_over_the_next_token():
    """Whatever comes next, the chances of all that may come add up to one."""
    draw = torch.Generator().manual_seed(3)
    x, gold = torch.randn(9, 4, generator=draw), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 0])
    chances = torch.softmax(torch.randn(9, 3, generator=draw), -1)
    total = 0.0
    for last in range(3):
        words = torch.cat([gold[:-1], torch.tensor([last])])
        total += math.exp(-float(neural_cache_nll(x, words, -chances.gather(1, words[:, None])[:, 0].log(), 5)[-1]))
    assert total == pytest.approx(1.0, abs=1e-5)


def test_a_text_that_repeats_itself_is_foreseen_by_looking_back(writer):
    """A model that learnt nothing foresees a repetition far better; in windows and in batches as in one row."""
    examples = [Example({"text": TEXT})]
    plain = evaluate(Language(Language.Config(max_tokens=24)), writer, examples)[0]
    task = Language(Language.Config(max_tokens=24, neural_cache=100))
    perplexity, _, alone = evaluate(task, writer, examples)
    assert alone.name == "perplexity_without_cache"
    assert alone.value == pytest.approx(plain.value, rel=1e-6)
    assert perplexity.value < 0.8 * plain.value
    shown = predict(task, writer, examples)[0][0]
    assert set(shown) == {"nats", "tokens", "bytes", "nats_without_cache"}


def test_a_recall_below_zero_is_refused(writer):
    with pytest.raises(ValueError, match=r"task\.neural_cache is -1"):
        Language(Language.Config(max_tokens=12, neural_cache=-1)).encode([Example({"text": TEXT})], writer)


def test_settings_of_a_task_are_said_anew_for_scoring():
    config = Language.Config(max_tokens=24)
    assert parse_overrides(config, ["eval_overlap=12", "neural_cache=100"]) == {"eval_overlap": 12, "neural_cache": 100}
    assert parse_overrides(config, []) == {}
    with pytest.raises(ValueError, match=r"the task has no setting 'neural_cach'; did you mean 'neural_cache'\?"):
        parse_overrides(config, ["neural_cach=3"])
    with pytest.raises(ValueError, match="eval_overlap must be of type int, such as 0"):
        parse_overrides(config, ["eval_overlap=far"])


@pytest.mark.parametrize(
    ("task", "change", "said"),
    [
        (Label, "multi_label=maybe", "multi_label must be of type bool, such as False"),
        (Label, "label_smoothing=nan", "label_smoothing must be of type float, such as 0"),
        (Label, "max_tokens=", "max_tokens must be of type int, such as 256"),
        (Span, "threshold=high", "threshold must be of type float."),
        (
            Label,
            "augment=counterfactal",
            r"augment=counterfactal: did you mean 'counterfactual'\? Known are none, flip",
        ),
    ],
)
def test_a_setting_that_training_would_refuse_is_refused_for_scoring(task, change, said):
    with pytest.raises(ValueError, match=said):
        parse_overrides(task.Config(), [change])


def test_settings_of_every_kind_are_said_anew():
    assert parse_overrides(Label.Config(), ["multi_label=yes", "label_smoothing=0.5", "max_tokens=8"]) == {
        "multi_label": True,
        "label_smoothing": 0.5,
        "max_tokens": 8,
    }
    assert parse_overrides(Span.Config(), ["threshold=0.5"]) == {"threshold": 0.5}
    assert parse_overrides(Label.Config(), ["augment=counterfactual"]) == {"augment": "counterfactual"}
