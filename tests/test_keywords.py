"""A wrong keyword of a public function is answered with the right one, as a wrong flag is."""

import inspect
import subprocess
import sys

import pytest

import saccade
from saccade.decoding.config import GenerationConfig
from saccade.errors import KeywordError, UsageError
from saccade.setting_synonyms import GENERATION_SYNONYMS, SYNONYMS, as_keyword


@pytest.fixture(scope="module")
def model():
    return saccade.new("gpt2", vocab=50, width=8, layers=1, heads=2)


CALLS = {
    "train(datas)": (lambda model: saccade.train("label", datas="x"), "did you mean 'data'"),
    "train(lr)": (lambda model: saccade.train("label", lr=1), r'use train=\{"lr": \.\.\.\}'),
    "train(learning_rate)": (lambda model: saccade.train("label", learning_rate=1), r'use train=\{"lr": \.\.\.\}'),
    "train(width)": (lambda model: saccade.train("label", width=1), r'use architecture=\{"width": \.\.\.\}'),
    "train(max_length)": (lambda model: saccade.train("label", max_length=1), r'use task=\{"max_tokens": \.\.\.\}'),
    "train(output_dir)": (lambda model: saccade.train("label", output_dir="x"), r"use out=\.\.\."),
    "train(num_workers)": (
        lambda model: saccade.train("label", num_workers=1),
        r"without data loader workers; leave it",
    ),
    "train(train)": (lambda model: saccade.train("label", train={"learning_rate": 1}), "use 'lr'"),
    "train(architecture)": (lambda model: saccade.train("label", architecture={"n_heads": 1}), "use 'heads'"),
    "look": (lambda model: saccade.look(model, "a", layer=3), "did you mean 'layers'"),
    "watch": (lambda model: saccade.watch(model, head=3), "did you mean 'heads'"),
    "generate": (lambda model: saccade.generate(model, "a", max_tokens=5), "use 'max_new_tokens'"),
    "generate(misspelt)": (lambda model: saccade.generate(model, "a", temprature=5), "did you mean 'temperature'"),
    "new": (lambda model: saccade.new("gpt2", hidden_size=5), "use 'width'"),
    "new(published)": (lambda model: saccade.new("gpt2", n_embd=5), "use 'width'"),
    "new(misspelt)": (lambda model: saccade.new("gpt2", layer=5), "did you mean 'layers'"),
    "load": (lambda model: saccade.load("x", heads="lm"), "did you mean 'head'"),
    "embed": (lambda model: saccade.embed(model, ["a"], trunkate=True), "did you mean 'truncate'"),
    "encode": (lambda model: saccade.encode(model, ["a"], trunkate=True), "did you mean 'truncate'"),
    "fast": (lambda model: saccade.fast(model, precison="int8"), "did you mean 'precision'"),
    "check": (lambda model: saccade.check(model, widht=8), "did you mean 'width'"),
    "open_run": (lambda model: saccade.open_run("x", tasks="label"), "did you mean 'task'"),
    "evaluate": (lambda model: saccade.evaluate("x", column={}), "did you mean 'columns'"),
    "list_runs": (lambda model: saccade.list_runs("x", sorted="date"), "did you mean 'sort'"),
    "run.export": (
        lambda model: saccade.Run("x").export("y", formats="hf"),
        "did you mean 'format'. Known are directory,",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_keyword_is_answered_with_the_right_one(name, model):
    call, hint = CALLS[name]
    for kind in (UsageError, TypeError, ValueError):  # what a script may catch
        with pytest.raises(kind, match=hint):
            call(model)


def test_functions_keep_their_signature_and_their_documentation():
    assert list(inspect.signature(saccade.train).parameters)[:3] == ["name", "data", "out"]
    assert "learning-rate schedule" in (saccade.train.__doc__ or "")
    assert saccade.look.__name__ == "look"


def test_a_keyword_that_is_not_unknown_passes_through():
    with pytest.raises(TypeError) as missing:
        saccade.look()  # type: ignore[call-arg]
    assert not isinstance(missing.value, KeywordError)


def test_every_synonym_of_generation_is_a_keyword():
    fields = set(GenerationConfig.__dataclass_fields__) | {"stream"}
    assert set(GENERATION_SYNONYMS.values()) <= fields
    assert not set(GENERATION_SYNONYMS) & fields


@pytest.mark.parametrize("flag", sorted({answer for answer in SYNONYMS.values() if answer.startswith("--")}))
def test_every_flag_of_the_synonyms_is_a_keyword_of_train(flag):
    keyword = as_keyword(flag).partition("=")[0]
    assert keyword in inspect.signature(saccade.train).parameters or keyword == "processes"


def test_sizes_are_keywords_of_a_new_model():
    model = saccade.new("gpt2", width=256, layers=4, vocab=8000)
    assert (model.config.width, model.config.layers, model.config.vocab) == (256, 4, 8000)
    assert model.config.heads == 4  # 64 wide, as by default
    assert saccade.new("gpt2", width=48, layers=1, vocab=9).config.heads == 12  # which divides 48
    with pytest.raises(UsageError, match="not divisible by 5 heads"):
        saccade.new("gpt2", width=48, heads=5, layers=1, vocab=9)


def test_nothing_at_the_top_imports_torch_before_it_is_used():
    program = "import sys, saccade; dir(saccade); saccade.UsageError; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
