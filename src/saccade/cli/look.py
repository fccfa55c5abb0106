"""`saccade look RUN TEXT`: where a model looked, head by head, as a summary, a picture, a page or JSON."""

import json as json_text
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from saccade.explain.agreement import Agreement
    from saccade.explain.align import Alignment, Where
    from saccade.explain.looks import Looks


@dataclass(frozen=True)
class Out:
    """Where the looks go, besides the summary."""

    html: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """One page with every map, which opens anywhere."""
    png: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """A picture; .svg and .pdf by the name of the file."""
    save: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """The maps as data, for saccade.explain.looks.Looks.load."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """With --remove: the directory of the smaller model, which must not exist yet."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print JSON: answer, tokens, and every head in numbers."""


@dataclass(frozen=True)
class Which:
    """What is looked at."""

    layer: tuple[int, ...] = ()
    """These layers only, from 0; -1 is the last."""
    head: tuple[int, ...] = ()
    """These heads only, from 0."""
    row: tuple[int, ...] = ()
    """These rows only, the tokens that look, from 0."""
    words: tyro.conf.FlagCreatePairsOff[bool] = False
    """Join sub-words to words."""
    beams: int = 1
    """A writer searches with so many beams, and the best text is looked at."""
    length: int = 0
    """The most tokens that a writer writes; 0: 24 where it continues a text, else as many as its task allows."""


@dataclass(frozen=True)
class Also:
    """What else is asked."""

    align: tyro.conf.FlagCreatePairsOff[bool] = False
    """Of a translation, which word became which: 0-0 1-2, and as a matrix in --html and --png."""
    best_head: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """Align by the head that errs least on these sentences (source, target, alignment); without a text, say which it is."""
    agree: tyro.conf.FlagCreatePairsOff[bool] = False
    """Whether the answer depends on what each layer points at: by gradients, and by taking tokens away."""
    word: str = ""
    """With two texts: how this word differs between them, layer by layer."""
    ablate: tyro.conf.FlagCreatePairsOff[bool] = False
    """What the run's own score loses without each head and layer; takes no text."""
    data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")] = ()
    """With --ablate: examples with answers; none: the held-out part of what the run was trained on."""
    examples: int = 100
    """With --ablate: so many of them at most."""
    rounds: int = 40
    """With --ablate: draws of the examples for the intervals."""
    positions: tyro.conf.FlagCreatePairsOff[bool] = False
    """How the model knows order: the barcode of its positions, and who may look at whom; takes no text."""
    remove: Annotated[tuple[str, ...], tyro.conf.arg(metavar="LAYER.HEAD")] = ()
    """Heads to leave out for good, such as 0.3 1.2 or across.1.0; takes no text, and writes a smaller model to --out."""


def main(
    run: tyro.conf.Positional[str],
    text: tyro.conf.Positional[tuple[str, ...]] = (),
    *,
    which: tyro.conf.OmitArgPrefixes[Which] = Which(),
    also: tyro.conf.OmitArgPrefixes[Also] = Also(),
    out: tyro.conf.OmitArgPrefixes[Out] = Out(),
) -> int:
    """Where a model looked, and what each of its heads does; without a text, the page to type one on.

    saccade look runs/reviews

    saccade look runs/reviews "What a lovely film." --html looks.html

    saccade look runs/pairs "A man sleeps." "Somebody rests." --layer -1 --head 3 --png head.png

    saccade look runs/dates "5 juin 2030" --align

    saccade look runs/base "the bank of the river" "the bank raised its rates" --word bank

    saccade look runs/reviews --ablate --layer 0

    saccade look runs/reviews --positions --png barcode.png

    saccade look runs/reviews --remove 0.3 1.2 --out runs/smaller

    Args:
        run: A run, or any directory with a model.
        text: A text, or two: a pair, or what a writer reads and is to write; a picture file for a model that sees.
        which: What is looked at.
        also: What else is asked.
        out: Where the looks go.
    """
    from saccade.cli.running import guarded

    def work() -> int:
        if not text and (which, also, out) == (Which(), Also(), Out()):
            from saccade.cli.serve import serve

            return serve((run,), 0, None, show=True)
        _check(text, which, also, out)
        if also.remove:
            from saccade.cli.removing import removed

            return removed(run, also.remove, out.out, as_json=out.json)
        if also.ablate or also.word or also.positions:
            from saccade.cli.finding import ablated, contexts, positions

            files = (out.html, out.png)
            if also.positions:
                return positions(run, *files, as_json=out.json)
            if also.ablate:
                return ablated(run, which, also, *files, as_json=out.json)
            return contexts(run, text, also.word, *files, as_json=out.json)
        if also.best_head and not text:
            return _best_head(run, which, also.best_head, out.json)
        return _look(run, text, which, also, out)

    def near() -> int:
        from saccade.cli.asking import named

        with named(run):
            return work()

    return guarded("look", near)


def _check(text: tuple[str, ...], which: Which, also: Also, out: Out) -> None:
    """Say at once what is missing."""
    from saccade.cli.settings import Wrong

    if also.remove and (text or also.ablate):
        raise Wrong(
            "--remove leaves heads out for good: it takes no text, and --ablate is asked before it or after it."
        )
    if out.out and not also.remove:
        raise Wrong("--out is where --remove writes a smaller model; pictures and data go to --html, --png and --save.")
    if also.ablate and text:
        raise Wrong("--ablate judges heads by many examples and takes no text; give them with --data.")
    if also.positions and (text or also.ablate or also.word):
        raise Wrong("--positions is about the model alone; leave the text, --word and --ablate out.")
    if out.save and (also.positions or also.ablate or also.word):
        raise Wrong("--save keeps maps of a text; --positions, --word and --ablate go to --html, --png and --json.")
    if which.row and also.align:
        raise Wrong("--align follows every word that was written; leave --row out.")
    if also.word and len(text) != 2:
        raise Wrong(f"--word compares a word in two texts; {len(text)} came.")
    if also.best_head and which.head:
        raise Wrong("--best-head finds the head by itself; leave --head out.")
    if not (also.ablate or also.remove or also.best_head or also.positions) and not 1 <= len(text) <= 2:
        raise Wrong(f"{len(text)} texts came; one is needed, or two that belong together.")
    if which.length < 0:
        raise Wrong(f"--length is {which.length}; a number of tokens is needed, or 0 for as many as the task allows.")
    if min(also.examples, also.rounds) < 2:
        raise Wrong(f"--examples is {also.examples} and --rounds {also.rounds}; an interval needs at least 2 of each.")
    _check_files(out)


def _check_files(out: Out) -> None:
    """Files that can be written, by names that say what is in them, before the model is asked."""
    from pathlib import Path

    from saccade.cli.settings import Wrong

    kinds = {"html": (".html", ".htm"), "png": (".png", ".svg", ".pdf"), "save": ()}
    for flag, suffixes in kinds.items():
        path = Path(getattr(out, flag))
        if not getattr(out, flag):
            continue
        if path.is_dir():
            example = path / f"look{suffixes[0] if suffixes else '.looks'}"
            raise Wrong(f"--{flag} {path}: is a directory; name a file in it, such as {example}.")
        if suffixes and path.suffix.lower() not in suffixes:
            raise Wrong(f"--{flag} {path}: the name of the file has to end in {' or '.join(suffixes)}.")


def _look(run: str, text: tuple[str, ...], which: Which, also: Also, out: Out) -> int:
    from saccade.decoding.settings import Decoding
    from saccade.explain.align import align
    from saccade.explain.look import look
    from saccade.explain.told import as_json, more, summary

    given = text[0] if len(text) == 1 else (text[0], text[1])
    where = _found_head(run, which, also.best_head)[0] if also.best_head else None
    decoding = Decoding(beams=which.beams, length=which.length or None)
    found = look(
        run,
        given,
        layers=which.layer or None,
        heads=which.head or None,
        rows=which.row or None,
        decoding=decoding,
    )
    aligned = align(found, where) if also.align or where else None
    found = found.to_words() if which.words else found
    agreed = _agreed(run, given, decoding) if also.agree else []
    for line in _written(found, aligned, agreed, out):
        print(f"saccade look: {line}", file=sys.stderr)
    print(as_json(found, aligned, agreed) if out.json else "\n".join([*summary(found), *more(aligned, agreed)]))
    return 0


def _found_head(run: str, which: Which, file: str) -> "tuple[Where, str]":
    from saccade.cli.aligning import head_on
    from saccade.explain.inputs import opened

    return head_on(opened(run)[1], file, which.layer or None)


def _best_head(run: str, which: Which, file: str, as_json: bool) -> int:
    where, said = _found_head(run, which, file)
    print(json_text.dumps({"layer": where.layer, "head": where.head, "later": where.later}) if as_json else said)
    return 0


def _agreed(run: str, given: Any, decoding: Any) -> "list[Agreement]":
    """Each layer's attention to what was read, the mean of its heads, held against the answer."""
    from saccade.explain.agreement import agree, evidence, judged

    found = evidence(run, given, decoding)
    return [agree(found, seen) for seen in judged(found)]


def _written(found: "Looks", aligned: "Alignment | None", agreed: "list[Agreement]", out: Out) -> list[str]:
    """The files that were asked for."""
    from pathlib import Path

    lines = []
    if out.html:
        from saccade.explain.findings import agreement_section
        from saccade.explain.gallery import alignment_section, write_gallery

        write_gallery(found, Path(out.html), more=[*alignment_section(aligned), *agreement_section(agreed)])
        lines.append(f"wrote {out.html}")
    if out.png:
        from saccade.cli.drawing import saying_missing_fonts
        from saccade.explain.figures import write_alignment, write_figure

        path = Path(out.png)
        with saying_missing_fonts("look"):
            lines.append(f"wrote {write_figure(found, path) if aligned is None else write_alignment(aligned, path)}")
    if out.save:
        lines.append(f"wrote {found.save(out.save)}")
    return lines
