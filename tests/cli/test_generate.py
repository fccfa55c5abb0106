"""The commands that write: what each flag reaches, what is printed in which shape, and where beginnings come from."""

import copy
import io
import json
import weakref

import pytest
import torch
from torch import nn

from saccade import text
from saccade.cli import main
from saccade.cli.engine_flags import EngineFlags
from saccade.cli.inputs import iter_examples, read_input_lines, read_stdin_lines
from saccade.cli.prediction_flags import Inputs
from saccade.data import Batch, Example, Text
from saccade.decoding import GenerationConfig, Sampler, StoppingCriteria, generate_texts
from saccade.decoding.generator import TextGenerator
from saccade.decoding.mbr import mbr_select
from saccade.models.build import new
from saccade.models.families import gpt2, transformer
from saccade.tasks.predict import predict
from saccade.tasks.records.generate import generate_records
from saccade.tasks.registry import task_class

TOKENIZER = text.train_tokenizer(["abcdefgh .,\n"], "characters", token_template="t5")
PLACES = 64


def model(family):
    sizes = {
        "vocab": TOKENIZER.vocab,
        "width": 12,
        "layers": 1,
        "heads": 3,
        "ffn_width": 17,
        "max_positions": PLACES,
        "dropout": 0.0,
    }
    torch.manual_seed(1)
    made = new(family, {"gpt2": gpt2, "transformer": transformer}[family].Config(**sizes)).eval()
    for p in made.parameters():
        nn.init.normal_(p, std=0.5)
    with torch.no_grad():  # letters rather than bytes
        letters = [len(TOKENIZER.id_to_token(id)) == 1 for id in range(TOKENIZER.vocab)]
        made.body.words.vectors.weight[letters] *= 4
    made.tokenizer = TOKENIZER
    return made


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A directory with a language model, and one with a translator."""
    where = tmp_path_factory.mktemp("runs")
    return {family: str(model(family).save(where / family)) for family in ("gpt2", "transformer")}


@pytest.fixture
def say(runs, capsys, monkeypatch):
    """A command, what came of it, and what it printed; nothing stands on standard input, as in CI."""

    def call(*words, typed: str | None = ""):
        monkeypatch.setattr("sys.stdin", None if typed is None else io.StringIO(typed))
        capsys.readouterr()
        code = main([runs.get(word, word) for word in words] + ["--engine", "off"])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def drawn(prompt, count, length=10, strings=(), rows=1):
    """Texts by another path: the loop itself, the prompt in front."""
    ids = TOKENIZER.encode(prompt, add_special_tokens=False).ids
    choose, batch = Sampler(0.8, top_p=0.95), Batch(Text.pad([ids] * rows))
    bounds, given = StoppingCriteria([TOKENIZER.eos_id], length), {"tokenizer": TOKENIZER, "stop_strings": strings}
    found = [generate_texts(model("gpt2"), batch, bounds, choose, **given) for _ in range(count)]
    return [prompt + one.text for some in found for one in some]


def test_samples_are_drawn_and_the_safest_is_taken(say):
    every = drawn("dcb", 6)
    best = mbr_select([one.removeprefix("dcb") for one in every])
    assert best.index != 0  # otherwise a plain draw would do
    assert say("generate", "gpt2", "dcb", "--mbr-samples", "6", "--max-new-tokens", "10") == (
        0,
        f"dcb{best.text}\n",
        "",
    )


@pytest.mark.parametrize("stop", [(), ("a", "gd")])
def test_the_text_is_the_same_in_every_shape(say, stop):
    (wanted,) = drawn("abc", 1, 20, stop)
    assert stop == () or wanted != drawn("abc", 1, 20)[0]
    asked = ["--max-new-tokens", "20", *(["--stop", *stop] if stop else [])]
    assert say("generate", "gpt2", "abc", *asked)[1] == f"{wanted}\n"
    assert json.loads(say("generate", "gpt2", "abc", "--json", *asked)[1])["text"] == wanted
    assert say("generate", "gpt2", *asked, typed="abc\n")[1] == f"{wanted}\n"
    several = drawn("abc", 1, 20, stop, rows=3)
    assert json.loads(say("generate", "gpt2", "abc", "--count", "3", "--json", *asked)[1]) == {"texts": several}
    assert say("generate", "gpt2", "abc", "--count", "3", *asked)[1] == "".join(f"{one}\n\n" for one in several)


def test_records_end_before_stop_strings_too():
    every = generate_records(model("gpt2"), 20, Sampler(seed=2), separator=",", max_new_tokens=30)
    found = generate_records(model("gpt2"), 20, Sampler(seed=2), separator=",", max_new_tokens=30, stop_strings=["h"])
    assert any("h" in one.text for one in every)
    for one in found:
        assert not {",", "h"} & set(one.text)
        assert one.is_complete or one in every


def test_an_object_has_one_shape(say, tmp_path):
    (tmp_path / "in.txt").write_text("abc\nhh a\n", encoding="utf-8")
    asked = ["--beams", "3", "--n-best", "3", "--max-new-tokens", "8"]
    one = json.loads(say("generate", "gpt2", "abc", "--json", *asked)[1])
    first, second = say("generate", "gpt2", "--data", str(tmp_path / "in.txt"), "--json", *asked)[1].splitlines()
    assert set(one) == {"prompt", "text", "score", "logprobs", "finished", "alternatives"} == set(json.loads(second))
    assert [one["text"], *(other["text"] for other in one["alternatives"])] == [
        json.loads(first)["text"],
        *(other["text"] for other in json.loads(first)["alternatives"]),
    ]
    assert set(json.loads(say("generate", "gpt2", "abc", "--json")[1])) == set(one) - {"alternatives"}
    printed = say("generate", "gpt2", "--data", str(tmp_path / "in.txt"), *asked)[1]
    wanted = [[shown, *shown["alternatives"]] for shown in map(json.loads, (first, second))]
    assert printed == "".join(
        "".join(f"{shown['score']:.4f}\t{shown['text']}\n" for shown in some) + "\n" for some in wanted
    )


def test_the_prompt_stays_and_the_length_gives_way(say):
    """Of 64 places; a text as long as the model reads all that came before it."""
    greedy = ["--temperature", "0", "--json"]
    prompt = "abcd" * 10
    code, out, err = say("generate", "gpt2", prompt, "--max-new-tokens", "300", *greedy)
    shown = json.loads(out)
    assert (code, err) == (0, "")
    assert len(shown["logprobs"]) == PLACES - len(prompt)
    assert shown["text"] == json.loads(say("generate", "gpt2", prompt, "--max-new-tokens", "24", *greedy)[1])["text"]
    code, out, err = say("generate", "gpt2", prompt * 3, "--max-new-tokens", "20", *greedy)
    assert "1 prompt was truncated at the start; the context length of the model is 64 tokens." in err
    assert len(json.loads(out)["logprobs"]) == 20
    ended = json.loads(say("generate", "gpt2", (prompt * 3)[-44:], "--max-new-tokens", "20", *greedy)[1])
    assert json.loads(out)["logprobs"] == pytest.approx(ended["logprobs"], abs=1e-5)
    assert say("generate", "gpt2", prompt * 3, "--max-new-tokens", "20")[2] == err


def test_a_pipe_is_read_where_nothing_else_is_given(say):
    asked = ["--temperature", "0", "--max-new-tokens", "6"]
    both = say("generate", "gpt2", *asked, typed="abc\nh\n")[1]
    assert both == "".join(say("generate", "gpt2", prompt, *asked)[1] for prompt in ("abc", "h"))
    assert say("generate", "gpt2", "abc", *asked, typed="h\n")[1] == both.splitlines(keepends=True)[0]
    for nothing in ("", None):
        code, out, _ = say("generate", "gpt2", *asked, typed=nothing)
        assert (code, len(out.removesuffix("\n"))) == (0, 6)
    assert len(json.loads(say("generate", "gpt2", "--count", "2", "--json", typed="abc\n")[1])["texts"]) == 2


def test_a_pipe_is_read_as_a_file_is(tmp_path, monkeypatch):
    raw = "\ufeffa \ufeffb\r\n\r\nc\rd\ne\r".encode()
    (tmp_path / "lines.txt").write_bytes(raw)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw), "utf-8", newline="\n"))  # as Python opens it
    assert (
        list(read_stdin_lines())
        == list(read_input_lines(str(tmp_path / "lines.txt")))
        == ["a \ufeffb", "", "c\rd", "e"]
    )


def test_a_file_that_cannot_be_read_is_named_with_its_line(say, tmp_path, runs):
    code, _, err = say("generate", "gpt2", "--data", str(tmp_path / "missing.txt"))
    assert (code, "missing.txt: cannot be read: No such file" in err) == (3, True)
    (tmp_path / "bad.txt").write_bytes(b"abc\nd\xe9f\n")
    code, _, err = say("generate", "gpt2", "--data", str(tmp_path / "bad.txt"))
    assert (code, "bad.txt:2: not UTF-8" in err) == (3, True)
    for strict in ("strict", "surrogateescape"):
        lines = io.TextIOWrapper(io.BytesIO(b"a\n" * 9000 + b"d\xe9f\na\n"), "utf-8", strict)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdin", lines)
            with pytest.raises(ValueError, match=r"standard input:9001: not UTF-8; got b'.*d\\xe9f"):
                list(iter_examples(task_class("translate")(), Inputs([], [], "")))


def test_a_pipe_is_answered_before_it_ends(say, capsys, monkeypatch):
    monkeypatch.setattr("saccade.decoding.batch_generate.MAX_PROMPTS_SORTED", 2)
    printed = []

    def slowly(*given):
        for _ in range(5):
            printed.append(capsys.readouterr().out.count("\n"))
            yield Example({"source": "ab"})

    monkeypatch.setattr("saccade.cli.inputs.iter_examples", slowly)
    code, out, _ = say("translate", "transformer")
    assert (code, printed, out.count("\n")) == (0, [0, 0, 2, 0, 2], 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--check --beams 2", "--check samples texts one by one"),
        ("--count 3 --mbr-samples 4", "--count samples texts one by one"),
        ("--count 3 --temperature 1 --n-best 2", "--count samples texts one by one"),
        ("--top-p 2", "--top-p: a probability above 0"),
        ("--temperature -1", "--temperature: 0 or more"),
        ("--contrastive-alpha 2", "--contrastive-alpha: a number from 0 to 1"),
        ("--beams 4 --beam-groups 3", "--beam-groups: groups must be of equal size; got 4 beams in 3 groups"),
        ("--regex (", "--regex: The expression '('"),
        ("--seed 99999999999999999999", "--seed: a whole number"),
        ("--beams 2 --length-penalty 1000", "--length-penalty: a number from -10 to 10"),
    ],
)
def test_what_cannot_be_is_refused_before_a_model_is_looked_for(say, words, said):
    code, _, err = say("generate", "nowhere", *words.split())
    assert code == 2
    assert said in err


@pytest.mark.parametrize("more", [[], ["--json"], ["--beams", "2"], ["--temperature", "0", "--prompt-lookup"]])
def test_json_by_a_schema_stands_alone(say, more, tmp_path):
    path = tmp_path / "schema.json"
    path.write_text('{"type": "array", "items": {"enum": ["a", 7]}, "minItems": 2}', encoding="utf-8")
    code, out, _ = say("generate", "gpt2", "abc", "--json-schema", str(path), "--max-new-tokens", "30", *more)
    answer = json.loads(out)["text"] if "--json" in more else out
    assert code == 0
    assert len(json.loads(answer)) >= 2
    assert set(json.loads(answer)) <= {"a", 7}
    code, out, _ = say("translate", "transformer", "abc", "--json-schema", str(path), "--max-new-tokens", "30")
    assert code == 0
    assert set(json.loads(out)) <= {"a", 7}


@pytest.mark.parametrize("command", ["generate", "translate"])
def test_a_bad_schema_is_refused_before_a_model_is_looked_for(say, command, tmp_path):
    path = tmp_path / "schema.json"
    path.write_text('{"minimun": 3}', encoding="utf-8")
    code, _, err = say(command, "nowhere", "abc", "--json-schema", str(path))
    assert code == 3
    assert f"{path}: at #: the keyword 'minimun' is unknown" in err
    code, _, err = say(command, "nowhere", "abc", "--json-schema", str(path), "--regex", "a")
    assert code == 2


@pytest.mark.parametrize("words", [["generate", "gpt2", "abc"], ["translate", "transformer", "abc", "--beams", "2"]])
def test_the_plain_model_goes_when_its_fast_form_is_there(say, words, monkeypatch):
    plain, alive = [], []

    def ready(self, model):
        plain.append(weakref.ref(model))
        return copy.deepcopy(model)

    start = type(model("gpt2")).start
    monkeypatch.setattr(EngineFlags, "prepare", ready)
    monkeypatch.setattr("saccade.models.model.Model.start", lambda *given: alive.append(plain[0]()) or start(*given))
    assert say(*words)[0] == 0
    assert alive
    assert alive == [None] * len(alive)


def translated(sources, settings, writer):
    task = task_class("translate")(task_class("translate").Config(max_tokens=100))
    examples = [Example({"source": source}) for source in sources]
    ways = TextGenerator(settings, writer, TOKENIZER)
    ask = None if settings == GenerationConfig() else lambda model, batch: task.generate(ways, batch)
    return predict(task, writer, examples, predictor=ask)[0]


ENDLESS = (
    GenerationConfig(beams=2, bad_words=("a",)),
    GenerationConfig(min_new_tokens=60),
    GenerationConfig(regex="[b-h]{50,}"),
    GenerationConfig(prompt_lookup=True),
)


@pytest.mark.parametrize("settings", [GenerationConfig(), *ENDLESS])
def test_a_translation_does_not_depend_on_its_neighbours(settings):
    """Texts that never end, beside short and long ones; alone each has the room of its own length."""
    writer = endless()
    sources = ["ab", "abc" * 13, "h"]
    together = translated(sources, settings, writer)
    for source, found in zip(sources, together, strict=True):
        (alone,) = translated([source], settings, writer)
        assert (found if isinstance(found, str) else found[0].tokens) == (
            alone if isinstance(alone, str) else alone[0].tokens
        )
    if settings == GenerationConfig():
        assert [len(one) for one in together] == [64, 100, 64]  # the step above twice and 20, 100 at most


def test_a_length_that_is_asked_for_counts():
    for length in (7, 130):
        found = translated(["ab", "abc" * 13], GenerationConfig(max_new_tokens=length, min_new_tokens=5), endless())
        assert [len(row[0].tokens) for row in found] == [length, length]


def endless():
    """A translator that never comes to an end, with places for 200 tokens."""
    writer = model("transformer")
    made = new("transformer", transformer.Config(**{**vars(writer.config), "max_positions": 200})).eval()
    made.load_state_dict(writer.state_dict(), strict=False)
    made.body.head.register_forward_hook(
        lambda module, given, out: out.index_fill(-1, torch.tensor([TOKENIZER.eos_id]), -1e4)
    )
    made.tokenizer = TOKENIZER
    return made
