"""`saccade import SOURCE RUN`: import a model of another library as a run."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import tyro

from saccade.cli.argument_types import optional_argument
from saccade.cli.terminal import escape_output
from saccade.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

    from saccade.models.family import Family
    from saccade.models.model import Model
    from saccade.text import Tokenizer


@escape_output()
def main(
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIR|FILE|NAME")],
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    *,
    tokenizer: Annotated[Path | None, optional_argument("FILE")] = None,
    head: Annotated[str | None, optional_argument("HEAD")] = None,
    family: Annotated[str | None, optional_argument("FAMILY")] = None,
    convert_pickle: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Import a model as a run, from a Hugging Face directory, a hub name, or a single file.

    saccade import downloads/all-MiniLM-L6-v2 runs/minilm

    saccade import stories260K.bin runs/stories --tokenizer tok512.bin

    saccade import model.enpt.intgemm.alphas.bin runs/enpt --tokenizer vocab.enpt.spm

    Supported single files are those of llama2.c and Marian (a student model of Bergamot or Firefox, in float32 or int8),
    recognized by content. A directory with pickled weights (pytorch_model.bin) is refused, because a pickle can run code when it
    is loaded. With --convert-pickle it is read in a separate process, tensors only, with limits on memory and time.

    Args:
        source: A model directory, a hub name, or a single file.
        run: Directory of the new run, which must not exist yet.
        tokenizer: Tokenizer of a single file, such as tok512.bin or vocab.spm. Default: the only one in the same directory.
        head: Head to keep: lm, label, tag or span; body keeps none. Default: the head that config.json names.
        family: Model family, such as bert, for a directory whose config.json has no model_type.
        convert_pickle: Read pickled weights in a separate process, tensors only.
    """
    if run.exists():
        _refuse(f"{run} already exists; name a new directory.", 2)
    from saccade.models.load import load
    from saccade.models.save import save

    try:
        path = Path(source)
        if path.is_file():
            if head is not None or family is not None:
                _refuse("--head and --family are for directories; a single file is recognized by its content.", 2)
            model = _read_single_file(path, tokenizer)
        elif convert_pickle:
            from saccade.models.io.convert_pickle import convert_pickles

            with convert_pickles(path) as converted:
                model = load(converted, head=head, family=family)
                model.report.summary = model.report.summary.replace(str(converted), str(path))
        else:
            model = load(source, head=head, family=family)
        if head is not None and model.report.missing:
            raise ModelError(_describe_missing_head(source, head, model))
        print(model.report)
        save(model, run / "model")
    except ValueError as error:
        _refuse(str(error), 4)
    print(f"written    {run}")
    return 0


def _describe_missing_head(source: str, head: str, model: "Model") -> str:
    """An error message about a head whose tensors are missing; `saccade train` adds a new one."""
    from saccade.models.unused_heads import find_heads

    others = find_heads(model.family, model.report.unexpected, model.report.unexpected)
    reason = f"its tensors may be a head for {' or '.join(others)}" if others else "it has no head that saccade knows"
    return (
        f"{source}: tensors of the head {head!r} are missing ({', '.join(model.report.missing[:4])}); {reason}. "
        f"Import it without --head; `saccade train` adds a new head."
    )


def _read_single_file(path: Path, tokenizer: Path | None) -> "Model":
    """Read a single file, whose format is recognized by its content."""
    from saccade.models.foreign import marian_bin, unsupported_formats
    from saccade.models.io import model_dir

    if model_dir.is_pickle(path):
        raise ModelError(f"{path}: is a pickle; put it into a directory with its config.json and use --convert-pickle.")
    if unsupported := unsupported_formats.describe_file(path):
        raise ModelError(unsupported)
    is_marian = marian_bin.is_marian_bin(path)
    read = _read_marian if is_marian else _read_llama2c
    default_tokenizer = None if tokenizer else _find_tokenizer(path, "*.spm" if is_marian else "tok*.bin")
    if default_tokenizer is not None:
        try:
            return read(path, default_tokenizer)
        except ValueError as error:
            print(f"tokenizer  skipped: {error}", file=sys.stderr)
    return read(path, tokenizer)


def _find_tokenizer(path: Path, pattern: str) -> Path | None:
    """The tokenizer in the directory of a file, if there is exactly one."""
    candidates = sorted(other for other in path.parent.glob(pattern) if other != path)
    if len(candidates) == 1:
        print(f"tokenizer  {candidates[0]}, found next to the weights")
        return candidates[0]
    reason = f"{len(candidates)} candidates" if candidates else f"no {pattern}"
    print(
        f"tokenizer  none: {reason} next to the weights; without --tokenizer the run cannot read text", file=sys.stderr
    )
    return None


def _read_marian(path: Path, tokenizer: Path | None) -> "Model":
    from saccade.models.families import marian_ssru
    from saccade.models.foreign import marian_bin

    config, tensors = marian_ssru.read_marian_ssru(path)
    vocab = None if tokenizer is None else marian_bin.read_vocab(tokenizer)
    if vocab is not None:
        _check_vocab_size(vocab, config.vocab, f"{tokenizer}", path)
        config = replace(config, decoder_start_id=vocab.eos_id)
    return _make_model(marian_ssru.FAMILY, config, tensors, vocab, path)


def _check_vocab_size(tokenizer: "Tokenizer", vocab: int, name: str, path: Path) -> None:
    if tokenizer.vocab != vocab:
        raise ModelError(
            f"{name}: has {tokenizer.vocab:,} tokens, but {path} has {vocab:,}; it belongs to another model."
        )


def _read_llama2c(path: Path, tokenizer: Path | None) -> "Model":
    from saccade import text
    from saccade.models.families import llama
    from saccade.models.foreign import llama2c

    config, tensors = llama2c.read_llama2c(path)
    vocab = None if tokenizer is None else text.load_llama2c_tokenizer(tokenizer)
    if vocab is not None:
        _check_vocab_size(vocab, config.vocab, f"{tokenizer}", path)
    return _make_model(llama.FAMILY, config, tensors, vocab, path)


def _make_model(
    family: "Family", config: Any, tensors: "dict[str, Tensor]", tokenizer: "Tokenizer | None", path: Path
) -> "Model":
    from saccade.models.check_weights import check_finite
    from saccade.models.model import LoadReport, Model

    check_finite(tensors, path)
    body = family.new_body(config)
    body.load_state_dict(tensors, strict=False)  # files hold tied tensors once
    model = Model(family, config, body).eval()
    model.tokenizer = tokenizer
    count = sum(p.numel() for p in body.parameters())
    model.report = LoadReport(f"{len(tensors)} tensors, {count / 1e6:,.2f} M parameters, as {family.name} from {path}")
    return model


def _refuse(message: str, code: int) -> NoReturn:
    print(f"saccade import: {message}", file=sys.stderr)
    raise SystemExit(code)
