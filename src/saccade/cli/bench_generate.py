"""`saccade bench generate`: how fast texts are gone on with, beside the peers, as ratios from one interleaved run."""

import json as json_text
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from saccade.cli.bench import number
from saccade.studies.writing_weights import Shape

if TYPE_CHECKING:
    from saccade.studies.writing_work import Work

START = "start-up"
CASES: dict[str, dict[str, Any]] = {
    "batch 1": {"rows": 1},
    "batch 8": {"rows": 8},
    "batch 32, mixed lengths": {"rows": 32, "mixed": True},
}


def main(
    shape: tyro.conf.OmitArgPrefixes[Shape] = Shape(),  # noqa: B008 (frozen)
    *,
    cases: tuple[str, ...] = (*CASES, START),
    rivals: tuple[str, ...] = ("transformers", "ctranslate2", "llama.cpp"),
    precision: str = "auto",
    prompt: int = 64,
    new: int = 128,
    rounds: int = 5,
    threads: int = 0,
    weights: Path = Path("bench/weights"),
    out: Path = Path("bench/generate.json"),
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """New tokens a second, greedy: saccade, `transformers`, CTranslate2 and llama.cpp on the same random weights.

    Each rival is in a process of its own, and they take turns; so does a plain read of memory, whose speed limits them all.
    Of each rival the best precision counts. A rival that is not installed is left out and named.

    $ saccade bench generate

    $ saccade bench generate --cases "batch 1" --rivals llama.cpp --rounds 9

    Args:
        shape: The sizes of GPT-2's architecture; those of the smallest published one, if not given.
        cases: Batch 1, batch 8, batch 32 with prompts of mixed lengths, start-up (the command, to its first token).
        rivals: Beside whom: transformers, ctranslate2, llama.cpp.
        precision: Of our own: auto, int8, float16, float32 or plain (the model as it was loaded).
        prompt: Tokens that each text begins with; where they are mixed, their mean.
        new: Tokens that are written to each.
        rounds: How often the rivals take turns.
        threads: Of each rival; 0: as many as there are cores.
        weights: Where the random weights are kept, for all rivals and the next run.
        out: Where the record goes; what it has of other cases stays.
        json: Print the record as JSON and nothing else.
    """
    from saccade.studies.starting import starts
    from saccade.studies.writing import race
    from saccade.studies.writing_weights import decoder
    from saccade.studies.writing_work import Work

    def work() -> int:
        known(cases, [*CASES, START], "case")
        shape.check()
        at_least(prompt=prompt, new=new, rounds=rounds)
        check("generate", rivals, precision, threads)
        room(shape.length, 2 * prompt + new)
        where, record = decoder(weights, shape), Record(out)
        for case in cases:
            if case == START:
                figures = starts(where, rivals, rounds, told(case))
            else:
                base = Work("generate", "", "", str(where), prompt=prompt, new=new, vocab=shape.vocab)
                base = replace(base, threads=threads or cores(), **CASES[case])
                figures = race(lined(base, rivals, precision), rounds, told(case))
            record.put(case, figures)
        return record.show(json)

    try:
        return work()
    except ValueError as error:
        print(f"saccade bench generate: {error}", file=sys.stderr)
        return 2


def check(kind: str, rivals: Sequence[str], precision: str, threads: int) -> None:
    """Refuse who and what is unknown before anything is written or measured."""
    from saccade.engine.choice import AUTO, PRECISIONS
    from saccade.studies.writing_rivals import WRITERS
    from saccade.studies.writing_work import PLAIN

    known(rivals, [who for who in WRITERS[kind] if not who.startswith("saccade")], "rival")
    known([precision], [AUTO, *PRECISIONS, PLAIN], "precision")
    if threads < 0:
        raise ValueError(f"--threads is 1 or more, or 0 for as many as there are cores; got {threads}.")


def lined(base: "Work", rivals: Sequence[str], precision: str) -> "list[Work]":
    """Ourselves in one precision and the rivals in all of theirs."""
    from saccade.studies.writing_rivals import WRITERS, precisions

    writers = WRITERS[base.kind]
    out = [replace(base, who=who, precision=precision) for who in writers if who.startswith("saccade")]
    return out + [replace(base, who=who, precision=p) for who in rivals for p in precisions(writers[who])]


def known(given: Sequence[str], names: Sequence[str], what: str) -> None:
    """Refuse a name that is not in the list, and say which is near."""
    from saccade.attention.table import nearest

    for name in given:
        if name not in names:
            raise ValueError(f"there is no {what} {name!r}; {nearest(name, list(names))}")


def at_least(**numbers: int) -> None:
    for name, value in numbers.items():
        if value < 1:
            raise ValueError(f"--{name} is 1 or more; got {value}.")


def room(length: int, needed: int) -> None:
    """Mixed prompts are up to twice as long as their mean."""
    if needed > length:
        raise ValueError(f"texts of up to {needed} tokens need a model of that --length or more; got {length}.")


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def told(case: str):
    """Progress, a line at a time on the standard error."""
    return lambda line: print(f"{case}, {line}", file=sys.stderr, flush=True)


class Record:
    """A file of figures that is written after every case; cases that are not measured again stay as they were."""

    def __init__(self, path: Path):
        self.path = path
        self.figures: dict[str, Any] = {}
        self.new: list[str] = []
        if path.exists():
            self.figures = json_text.loads(path.read_text(encoding="utf-8"))["figures"]

    def put(self, case: str, figures: dict[str, Any]) -> None:
        from saccade.studies.measure import machine

        facts = machine()
        self.new.append(case)
        self.figures[case] = figures | {"date": facts["date"], "load afterwards": facts["load"]}
        self.text = json_text.dumps({"machine": facts, "figures": self.figures}, indent=1, ensure_ascii=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.text + "\n", encoding="utf-8")

    def show(self, json: bool) -> int:
        """Print it; the code says whether we ourselves fell out of a race, which is a bug of ours."""
        print(self.text if json else table(self.figures))
        return int(any(who.startswith("saccade") for case in self.new for who in self.figures[case].get("missing", ())))


def table(figures: dict[str, dict[str, Any]]) -> str:
    """A few lines for each case: how many times as fast, how fast, how near to the limit, and who was not there."""
    lines = []
    for case, figure in figures.items():
        lines.append(case)
        for ours, ratios in figure.get("times as fast", {}).items():
            lines += [f"  {ours}: {spanned(ratio)} times as fast as {who}" for who, ratio in ratios.items()]
        for kind in ("tokens/s", "sentences/s", "seconds", "share of the memory's speed"):
            if kind in figure:
                lines.append(f"  {kind}: " + ", ".join(f"{who} {spanned(x)}" for who, x in figure[kind].items()))
        for kind in ("precision", "weights MB", "held MB", "peak MB", "missing"):
            if figure.get(kind):
                lines.append(f"  {kind}: " + "; ".join(f"{who} {x}" for who, x in figure[kind].items()))
    return "\n".join(lines)


def spanned(figure: dict[str, float]) -> str:
    """Median and spread, in as many digits as they are worth."""
    median, low, high = (number(figure[part]) for part in ("median", "low", "high"))
    return f"{median} ({low} to {high})"
