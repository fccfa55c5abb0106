"""`saccade.generate`: text in and text out, by keywords, whole and streamed."""

from dataclasses import fields

import pytest

import saccade
from saccade.api.generate import GenerationSettings
from saccade.decoding.config import GenerationConfig
from saccade.errors import ModelError, UsageError

SIZES = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16}
SHORT = {"max_steps": 3, "max_eval_examples": 10}


@pytest.fixture(scope="module")
def tales(tmp_path_factory):
    return saccade.train("language", out=tmp_path_factory.mktemp("tales") / "run", architecture=SIZES, train=SHORT)


@pytest.fixture(scope="module")
def dates(tmp_path_factory):
    return saccade.train("translate", out=tmp_path_factory.mktemp("dates") / "run", architecture=SIZES, train=SHORT)


def test_keywords_are_the_fields_of_the_config():
    assert set(GenerationSettings.__annotations__) == {item.name for item in fields(GenerationConfig)}


def test_a_run_a_path_and_a_model_write_the_same(tales):
    settings = {"max_new_tokens": 12, "temperature": 0.8, "top_p": 0.95, "seed": 1}
    wanted = saccade.generate(tales, "Once", **settings)
    assert isinstance(wanted, str)
    assert wanted.startswith("Once")
    assert saccade.generate(tales.path, "Once", **settings) == wanted
    assert saccade.generate(tales.model, "Once", decoding=GenerationConfig(**settings)) == wanted
    assert saccade.generate(tales, ["Once", "Once"], **settings)[0].startswith("Once")
    assert saccade.generate(tales, "Once", **{**settings, "seed": 2}) != wanted


@pytest.mark.parametrize("prompt", ["Once upon", "", "Once " * 300])
def test_streamed_pieces_are_the_whole_text(tales, dates, prompt):
    for run in (tales, dates):
        for settings in ({"max_new_tokens": 20}, {"max_new_tokens": 20, "temperature": 1.0, "seed": 3}):
            pieces = list(saccade.generate(run, prompt, stream=True, **settings))
            assert "".join(pieces) == saccade.generate(run, prompt, **settings)


def test_stop_strings_end_a_text(tales):
    text = saccade.generate(tales, "Once", max_new_tokens=40)
    letter = text[len("Once") + 3]
    cut = saccade.generate(tales, "Once", max_new_tokens=40, stop=letter)
    assert cut == text[: 4 + text[4:].index(letter)]
    assert "".join(saccade.generate(tales, "Once", max_new_tokens=40, stop=[letter], stream=True)) == cut


def test_what_cannot_be_is_answered_by_name(tales, tmp_path):
    with pytest.raises(UsageError, match=r"no keyword 'max_tokens'; .*max_new_tokens"):
        saccade.generate(tales, "a", max_tokens=3)
    with pytest.raises(UsageError, match="stream=True takes one prompt"):
        saccade.generate(tales, ["a"], stream=True)
    with pytest.raises(UsageError, match="streamed token by token"):
        list(saccade.generate(tales, "a", stream=True, beams=2))
    bert = saccade.new("bert", vocab=30, width=8, layers=1, heads=2, ffn_width=8)
    with pytest.raises(ModelError, match="bert generates no text"):
        saccade.generate(bert, "a")
    with pytest.raises(UsageError, match=r"bert has no setting 'wdith'; did you mean 'width'"):
        saccade.new("bert", wdith=8)
