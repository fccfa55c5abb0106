"""What is checked of a stored model before it is used, beyond what the hostile directories and runs try."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hostile.bases import VOCAB, WORDS, spec
from saccade.data import Example
from saccade.models.build import new
from saccade.models.check_weights import check_finite
from saccade.models.families import bert
from saccade.models.load import load
from saccade.models.model import Model
from saccade.tasks.pair import Pair
from saccade.tasks.span import Span

SIZES: dict[str, Any] = {"vocab": VOCAB, "width": 12, "layers": 1, "heads": 3, "ffn_width": 20, "max_positions": 32}


def stored(where: Path, family: str, config: Any, head: str, tokenizer: dict[str, Any] | None = None) -> Model:
    new(family, config, head=head, labels=("a", "b") if head == "label" else ()).save(where)
    (where / "tokenizer.json").write_text(json.dumps(tokenizer or spec()), encoding="utf-8")
    return load(where)


PAIRS = Example({"first": "the bank", "second": "a b", "label": "a"})
ASKED = Example({"question": "the bank", "context": "a b", "answers": [], "id": "1"})


@pytest.mark.parametrize(("task", "head", "example"), [(Pair, "label", PAIRS), (Span, "span", ASKED)])
@pytest.mark.parametrize("segments", [1, 2])
def test_two_texts_are_read_with_one_segment_or_two(
    tmp_path: Path, task: Any, head: str, example: Example, segments: int
):
    model = stored(tmp_path, "bert", bert.Config(**SIZES, segments=segments), head)
    asked = task(labels=model.labels)
    assert len(asked.answer(model, asked.batch(asked.encode([example], model)))) == 1


@pytest.mark.parametrize("place", ["pair", "mask"])
def test_a_special_token_beyond_the_model_that_is_used_is_refused(tmp_path: Path, place: str):
    """A token that only stands between two texts, or that only a mask is, is used all the same."""
    tokenizer = spec()
    more = {"id": len(WORDS), "content": "[BIG]", "single_word": False, "lstrip": False, "rstrip": False}
    tokenizer["added_tokens"].append(more | {"normalized": False, "special": True})
    if place == "pair":
        post = tokenizer["post_processor"]
        post["pair"].append({"SpecialToken": {"id": "[BIG]", "type_id": 1}})
        post["special_tokens"]["[BIG]"] = {"id": "[BIG]", "ids": [len(WORDS)], "tokens": ["[BIG]"]}
    config = replace(bert.Config(**SIZES), vocab=len(WORDS))
    new("bert", config).save(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    if place == "mask":
        assert load(tmp_path).report.notes[-1].startswith("unused")  # known to nobody, it does no harm
        (tmp_path / "special_tokens_map.json").write_text('{"mask_token": "[BIG]"}', encoding="utf-8")
        (tmp_path / "tokenizer_config.json").write_text('{"mask_token": "[BIG]"}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"BIG.*another model"):
        load(tmp_path)


def test_weights_whose_sum_overflows_are_finite_all_the_same():
    check_finite({"a": torch.full((64,), 3e38), "b": torch.tensor([2**62])}, Path("x"))
    with pytest.raises(ValueError, match=r"a \(2 of 3\)"):
        check_finite({"a": torch.tensor([float("nan"), 1.0, float("inf")]), "b": torch.ones(2)}, Path("x"))
