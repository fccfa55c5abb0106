"""`python -m benchmarks.encode --model DIR --data FILE`: throughput of sentence embeddings, compared with ONNX Runtime.

Each engine runs in a separate worker process. In every round the workers are measured one after another in random order, after a
pause in which the threads of the previous one become idle. The latency between the cores (the round trip of a cache line) is
recorded with every round, because it varies and determines what a second thread gains.
"""

import ctypes
import json
import os
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import tyro

from benchmarks.encoding.export import FILES, export
from benchmarks.worker import Worker, WorkerFailed, spread
from saccade.engine.native.build import CompileUnit, build_units
from saccade.errors import DataError
from saccade.system import describe_machine

OURS = ("saccade int8", "saccade bfloat16", "saccade float32")
ROUND_TRIP = Path(__file__).parent / "encoding" / "core_round_trip.cpp"
EXACT = "saccade float32"  # whose vectors the others are compared with
KINDS = ("with tokenizer", "encoder alone")


@dataclass(frozen=True)
class Options:
    """What is encoded, and for how long."""

    model: Path
    """A directory with a BERT, such as all-MiniLM-L6-v2, as sentence-transformers publishes it."""
    data: Path
    """Sentences, one a line; of a table the first column."""
    out: Path = Path("docs/results/encode.json")
    """Where the record is written."""
    onnx: Path = Path("bench/onnx")
    """Where the models of ONNX Runtime are kept for the next run."""
    batch_sizes: tuple[int, ...] = (1, 8, 32)
    """Texts that are encoded at a time."""
    rounds: int = 9
    """Rounds of turns for each batch size."""
    seconds: float = 0.3
    """Seconds of a turn, with the tokenizer and without."""
    pause: float = 0.15
    """Seconds before each turn."""
    tokens: tuple[int, int] = (14, 23)
    """Least and most tokens of a text, special tokens included."""
    texts: int = 128
    """Number of texts."""


def main(options: tyro.conf.OmitArgPrefixes[Options]) -> int:
    """Race saccade against ONNX Runtime on sentence vectors, and record medians, quartiles and ratios."""
    texts, mean_tokens = choose_texts(options)
    export(options.model, options.onnx)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "texts.json"
        file.write_text(json.dumps(texts), encoding="utf-8")
        workers = start_workers(options, file)
        record = {
            "machine": describe_machine(),
            "model": options.model.name,
            "texts": len(texts),
            "mean tokens": mean_tokens,
            "cosine with float32": compare_vectors(workers),
            "batches": {},
        }
        for size in options.batch_sizes:
            record["batches"][str(size)] = found = measure(options, workers, size)
            print(f"batch {size}", json.dumps(found["with tokenizer"]["ratios"], indent=1), flush=True)
            options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        for worker in workers:
            worker.close()
    return 0


def choose_texts(options: Options) -> tuple[list[str], float]:
    """Lines, or two lines together, that have as many tokens as asked, from all over the file, and their mean number."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    lines = [line.split("\t")[0] for line in options.data.read_text(encoding="utf-8").splitlines() if line.strip()]
    least, most = options.tokens
    chosen: dict[str, int] = {}
    pairs = list(pairwise([*lines, ""]))
    random.Random(0).shuffle(pairs)
    for text in (candidate.strip() for pair in pairs for candidate in (" ".join(pair), pair[0])):
        count = len(tokenizer.encode(text).ids)
        if least <= count <= most:
            chosen[text] = count
        if len(chosen) == options.texts:
            return list(chosen), round(statistics.mean(chosen.values()), 1)
    raise DataError(f"{options.data} has {len(chosen)} texts of {least} to {most} tokens; {options.texts} are needed.")


def start_workers(options: Options, texts: Path) -> list[Worker]:
    workers = []
    for name in (*OURS, *FILES):
        command = [
            sys.executable,
            "-m",
            "benchmarks.encoding.baseline",
            name,
            str(options.model),
            str(options.onnx),
            str(texts),
        ]
        try:
            workers.append(Worker(name, command, threads=2))
        except WorkerFailed as error:
            print(f"left out: {error}", flush=True)
    return workers


def compare_vectors(workers: list[Worker]) -> dict[str, dict[str, float]]:
    """Mean and minimum cosine similarity of the embeddings of each engine with those of saccade in float32."""
    exact = next(worker.load_response["vectors"] for worker in workers if worker.name == EXACT)
    found = {}
    for worker in workers:
        rows = zip(worker.load_response["vectors"], exact, strict=True)
        cosines = [sum(a * b for a, b in zip(one, other, strict=True)) for one, other in rows]
        found[worker.name] = {"mean": round(statistics.mean(cosines), 5), "least": round(min(cosines), 5)}
    return found


def measure(options: Options, workers: list[Worker], size: int) -> dict[str, Any]:
    """Throughput of all workers at one batch size in texts per second, and their ratios."""
    turns: dict[str, list[dict[str, float]]] = {worker.name: [] for worker in workers}
    trips, order = [], list(workers)
    for number in range(options.rounds):
        trips.append(core_round_trip())
        random.Random(number).shuffle(order)
        for worker in order:
            time.sleep(options.pause)
            turns[worker.name].append(worker.request(batch_size=size, seconds=options.seconds))
    found: dict[str, Any] = {"core round trip, ns": spread(trips, 0)}
    for kind in KINDS:
        speeds = {name: [turn[kind] for turn in rounds] for name, rounds in turns.items()}
        found[kind] = {
            "texts a second": {name: spread(values, 0) for name, values in speeds.items()},
            "ratios": summarize_ratios(speeds),
        }
    return found


def summarize_ratios(speeds: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Speedup of each engine of saccade over each baseline: the ratio of their throughput in the same round.

    >>> summarize_ratios({"saccade int8": [4.0, 6.0, 9.0], "onnxruntime int8": [2.0, 2.0, 3.0]})
    {'saccade int8 over onnxruntime int8': {'median': 3.0, 'low': 2.0, 'high': 3.0, 'rounds': 3}}
    """
    return {
        f"{ours} over {other}": spread([a / b for a, b in zip(speeds[ours], speeds[other], strict=True)], 2)
        for ours in OURS
        for other in FILES
        if ours in speeds and other in speeds
    }


def core_round_trip(count: int = 2000) -> float:
    """Nanoseconds that a cache line takes from one core to another and back; 0 with a single core."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        return 0.0
    library = ctypes.CDLL(str(build_units([CompileUnit(ROUND_TRIP)], [ROUND_TRIP], "-std=c++17", "-O2")))
    library.round_trip.restype = ctypes.c_double
    return library.round_trip(*cores, count)


if __name__ == "__main__":
    sys.exit(tyro.cli(main))
