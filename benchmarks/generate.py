"""`python -m benchmarks.generate`: how fast texts are gone on with, beside the peers, as ratios from one interleaved run."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from benchmarks.generation.options import Record, Terms, at_least, ended, known, lined, room, told
from benchmarks.generation.weights import Shape

START = "start-up"
CASES: dict[str, dict[str, Any]] = {
    "batch 1": {"rows": 1},
    "batch 8": {"rows": 8},
    "batch 32, mixed lengths": {"rows": 32, "mixed": True},
}


@dataclass(frozen=True)
class Asked:
    """What is gone on with, beside whom, and with which weights."""

    cases: tuple[str, ...] = (*CASES, START)
    """Batch 1, batch 8, batch 32 with prompts of mixed lengths, start-up (the command, to its first token)."""
    rivals: tuple[str, ...] = ("transformers", "ctranslate2", "llama.cpp")
    """Beside whom: transformers, ctranslate2, llama.cpp."""
    prompt: int = 64
    """Tokens that each text begins with; where they are mixed, their mean."""
    new: int = 128
    """Tokens that are written to each."""
    weights: Path = Path("bench/weights")
    """Where the random weights are kept, for all rivals and the next run."""

    def check(self, shape: Shape) -> None:
        """Refuse unknown cases and texts that a model of this shape has no room for."""
        known(self.cases, [*CASES, START], "case")
        shape.check()
        at_least(prompt=self.prompt, new=self.new)
        room(shape.length, 2 * self.prompt + self.new)


def main(
    asked: tyro.conf.OmitArgPrefixes[Asked] = Asked(),
    shape: tyro.conf.OmitArgPrefixes[Shape] = Shape(),  # noqa: B008 (frozen)
    terms: tyro.conf.OmitArgPrefixes[Terms] = Terms(Path("bench/generate.json")),  # noqa: B008 (frozen)
) -> int:
    """New tokens a second, greedy: saccade, `transformers`, CTranslate2 and llama.cpp on the same random weights.

    Each rival is in a process of its own, and they take turns; so does a plain read of memory, whose speed limits them all.
    Of each rival the best precision counts. A rival that is not installed is left out and named.

    $ python -m benchmarks.generate

    $ python -m benchmarks.generate --cases "batch 1" --rivals llama.cpp --rounds 9

    Args:
        asked: What is gone on with, and beside whom.
        shape: The sizes of GPT-2's architecture; those of the smallest published one, if not given.
        terms: How the race is run, and where its figures go.
    """
    return ended("generate", lambda: _raced(asked, shape, terms))


def _raced(asked: Asked, shape: Shape, terms: Terms) -> int:
    """Case by case, each written down when it is done."""
    from benchmarks.generation.race import race
    from benchmarks.generation.startup import starts
    from benchmarks.generation.weights import decoder
    from benchmarks.generation.workload import Work

    asked.check(shape)
    terms.check("generate", asked.rivals)
    where, record = decoder(asked.weights, shape), Record(terms.out)
    base = Work("generate", "", "", str(where), prompt=asked.prompt, new=asked.new, vocab=shape.vocab)
    base = replace(base, threads=terms.used)
    for case in asked.cases:
        if case == START:
            figures = starts(where, asked.rivals, terms.rounds, told(case))
        else:
            works = lined(replace(base, **CASES[case]), asked.rivals, terms.precision)
            figures = race(works, terms.rounds, told(case))
        record.put(case, figures)
    return record.show(terms.json)


if __name__ == "__main__":
    sys.exit(tyro.cli(main, prog="python -m benchmarks.generate"))
