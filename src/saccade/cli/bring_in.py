"""`saccade import SOURCE RUN`: other people's models, read with care and written down as a run."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import tyro

from saccade.cli.terminal import harmless_output
from saccade.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

    from saccade.models.family import Family
    from saccade.models.model import Model
    from saccade.text import Tokenizer


@harmless_output()
def main(
    source: tyro.conf.Positional[str],
    run: tyro.conf.Positional[Path],
    *,
    tokenizer: Path | None = None,
    head: str | None = None,
    family: str | None = None,
    convert: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Read a model and write it as a run: a Hugging Face directory, a name on the hub, or a single file.

    saccade import downloads/all-MiniLM-L6-v2 runs/minilm

    saccade import stories260K.bin runs/stories --tokenizer tok512.bin

    saccade import model.enpt.intgemm.alphas.bin runs/enpt --tokenizer vocab.enpt.spm

    Single files are llama2.c's and Marian's (a student of Bergamot or Firefox, in float32 or int8), told apart by content.
    A directory with pickled weights (pytorch_model.bin) is refused, since a pickle can run code when it is read; with
    --convert it is read in a process of its own, tensors only, with limits on memory and time.

    Args:
        source: A directory, a name on the hub, or a file.
        run: The directory to write; it must not exist yet.
        tokenizer: The tokenizer of a single file: llama2.c's tok512.bin, Marian's vocab.spm. Without it, the only one that lies
            beside the file is taken.
        head: Keep this head of a directory (words, label, tag or span), also where its config.json does not name it; body keeps
            none. Without it, the head that config.json names is kept.
        family: The family of a directory whose config.json has no model_type, such as bert.
        convert: Read pickled weights, tensors only, in a process of its own.
    """
    if run.exists():
        _refuse(f"{run} exists already; name a new directory.", 2)
    from saccade.models.load import load
    from saccade.models.save import save

    try:
        path = Path(source)
        if path.is_file():
            if head is not None or family is not None:
                _refuse("--head and --family are for directories; a single file is told by its content.", 2)
            model = _file(path, tokenizer)
        elif convert:
            from saccade.models.convert import converted

            with converted(path) as clean:
                model = load(clean, head=head, family=family)
                model.report.loaded = model.report.loaded.replace(str(clean), str(path))
        else:
            model = load(source, head=head, family=family)
        if head is not None and model.report.new:
            raise ModelError(_headless(source, head, model))
        print(model.report)
        save(model, run / "model")
    except ValueError as error:
        _refuse(str(error), 4)
    print(f"written    {run}")
    return 0


def _headless(source: str, head: str, model: "Model") -> str:
    """Why a head cannot be kept that the files do not have; training begins a new one."""
    from saccade.models.dropped_heads import find_heads

    others = find_heads(model.family, model.report.left, model.report.left)
    there = f"its tensors may be a head for {' or '.join(others)}" if others else "it has no head that is built here"
    return (
        f"{source}: has no whole head {head!r} ({', '.join(model.report.new[:4])} missing); {there}. "
        f"Import it without --head; `saccade train` begins a new head on it."
    )


def _file(path: Path, tokenizer: Path | None) -> "Model":
    """A single file, told by content."""
    from saccade.models import files, marian_bin, unreadable

    if files.pickled(path):
        raise ModelError(f"{path}: is a pickle; put it into a directory with its config.json and use --convert.")
    other = unreadable.describe_file(path)
    if other:
        raise ModelError(other)
    marian = marian_bin.is_marian(path)
    read = _marian if marian else _llama2c
    found = None if tokenizer else _beside(path, "*.spm" if marian else "tok*.bin")
    if found is not None:
        try:
            return read(path, found)
        except ValueError as error:
            print(f"tokenizer  left out: {error}", file=sys.stderr)
    return read(path, tokenizer)


def _beside(path: Path, pattern: str) -> Path | None:
    """The tokenizer in the directory of a file, if there is one and no other."""
    found = sorted(other for other in path.parent.glob(pattern) if other != path)
    if len(found) == 1:
        print(f"tokenizer  {found[0]}, which lies beside the weights")
        return found[0]
    there = f"{len(found)} lie beside it, so name one" if found else f"none ({pattern}) lies beside it"
    print(f"tokenizer  not given, and {there}: without --tokenizer the run cannot read text", file=sys.stderr)
    return None


def _marian(path: Path, tokenizer: Path | None) -> "Model":
    from saccade.models import marian_bin, marian_student

    config, tensors = marian_student.read_student(path)
    words = None if tokenizer is None else marian_bin.read_vocab(tokenizer)
    if words is not None:
        _same_size(words, config.vocab, f"{tokenizer}", path)
        config = replace(config, begin=words.end)
    return _model(marian_student.FAMILY, config, tensors, words, path)


def _same_size(words: "Tokenizer", vocab: int, named: str, path: Path) -> None:
    if words.vocab != vocab:
        raise ModelError(f"{named}: has {words.vocab:,} pieces, and {path} {vocab:,}; is it another model's?")


def _llama2c(path: Path, tokenizer: Path | None) -> "Model":
    from saccade import text
    from saccade.models import llama, llama2c

    config, tensors = llama2c.read_llama2c(path)
    words = None if tokenizer is None else text.from_llama2c(tokenizer)
    if words is not None:
        _same_size(words, config.vocab, f"{tokenizer}", path)
    return _model(llama.FAMILY, config, tensors, words, path)


def _model(
    family: "Family", config: Any, tensors: "dict[str, Tensor]", words: "Tokenizer | None", path: Path
) -> "Model":
    from saccade.models.model import Model, Report
    from saccade.models.sound import check_finite

    check_finite(tensors, path)
    body = family.build(config)
    body.load_state_dict(tensors, strict=False)  # readers give all there is; what is tied comes once
    model = Model(family, config, body).eval()
    model.tokenizer = words
    count = sum(p.numel() for p in body.parameters())
    model.report = Report(f"{len(tensors)} tensors, {count / 1e6:,.2f} M parameters, as {family.name} from {path}")
    return model


def _refuse(said: str, code: int) -> NoReturn:
    print(f"saccade import: {said}", file=sys.stderr)
    raise SystemExit(code)
