"""`python -m benchmarks.generate`: speed of text generation compared with other libraries, as ratios from an interleaved run."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from benchmarks.generation.options import (
    Record,
    RunOptions,
    check_length,
    check_names,
    check_positive,
    exit_code,
    make_log,
    make_workloads,
)
from benchmarks.generation.weights import Shape

START = "start-up"
CASES: dict[str, dict[str, Any]] = {
    "batch 1": {"batch_size": 1},
    "batch 8": {"batch_size": 8},
    "batch 32, mixed lengths": {"batch_size": 32, "mixed_lengths": True},
}


@dataclass(frozen=True)
class GenerateOptions:
    """The cases, the baselines, the number of tokens and the weights."""

    cases: tuple[str, ...] = (*CASES, START)
    """Cases to measure: "batch 1", "batch 8", "batch 32, mixed lengths", and start-up (command line to first token)."""
    baselines: tuple[str, ...] = ("transformers", "ctranslate2", "llama.cpp")
    """Libraries to compare with: transformers, ctranslate2, llama.cpp."""
    prompt_tokens: int = 64
    """Number of tokens of each prompt or, for mixed lengths, their mean."""
    new_tokens: int = 128
    """Number of tokens to generate for each prompt."""
    weights: Path = Path("bench/weights")
    """Directory for the random weights, which all libraries and later runs share."""

    def check(self, shape: Shape) -> None:
        """Reject unknown cases, and texts that are longer than a model of this shape allows."""
        check_names(self.cases, [*CASES, START], "case")
        shape.check()
        check_positive(prompt_tokens=self.prompt_tokens, new_tokens=self.new_tokens)
        check_length(shape.max_positions, 2 * self.prompt_tokens + self.new_tokens)


def main(
    options: tyro.conf.OmitArgPrefixes[GenerateOptions] = GenerateOptions(),
    shape: tyro.conf.OmitArgPrefixes[Shape] = Shape(),  # noqa: B008 (frozen)
    run: tyro.conf.OmitArgPrefixes[RunOptions] = RunOptions(Path("bench/generate.json")),  # noqa: B008 (frozen)
) -> int:
    """New tokens per second with greedy decoding: saccade, `transformers`, CTranslate2 and llama.cpp on the same random weights.

    Each library runs in its own process, and all are measured alternately, together with the memory bandwidth, which limits
    them all. Each library counts with its fastest precision. A library that is not installed is skipped and listed as missing.

    $ python -m benchmarks.generate

    $ python -m benchmarks.generate --cases "batch 1" --baselines llama.cpp --rounds 9

    Args:
        options: What to generate, and which libraries to compare with.
        shape: Sizes of the GPT-2 architecture; by default those of the smallest published model (124 million parameters).
        run: How the benchmark is run, and where its figures are written.
    """
    return exit_code("generate", lambda: _run_benchmark(options, shape, run))


def _run_benchmark(options: GenerateOptions, shape: Shape, run: RunOptions) -> int:
    """Measure case by case, and update the record after each."""
    from benchmarks.generation.compare import compare
    from benchmarks.generation.startup import measure_startup
    from benchmarks.generation.weights import make_decoder
    from benchmarks.generation.workload import Workload

    options.check(shape)
    run.check("generate", options.baselines)
    directory, record = make_decoder(options.weights, shape), Record(run.out)
    base = Workload("generate", "", "", str(directory), vocab=shape.vocab, threads=run.thread_count)
    base = replace(base, prompt_tokens=options.prompt_tokens, new_tokens=options.new_tokens)
    for case in options.cases:
        if case == START:
            figures = measure_startup(directory, options.baselines, run.rounds, make_log(case))
        else:
            workloads = make_workloads(replace(base, **CASES[case]), options.baselines, run.precision)
            figures = compare(workloads, run.rounds, make_log(case))
        record.add(case, figures)
    return record.show(run.json)


if __name__ == "__main__":
    sys.exit(tyro.cli(main, prog="python -m benchmarks.generate"))
