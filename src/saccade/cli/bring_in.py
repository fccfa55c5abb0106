"""`saccade import SOURCE RUN`: other people's models, read with care and written down as a run."""

import sys
from pathlib import Path
from typing import NoReturn

import tyro


def main(
    source: tyro.conf.Positional[str],
    run: tyro.conf.Positional[Path],
    *,
    tokenizer: Path | None = None,
    convert: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Read a model and write it as a run: a Hugging Face directory, a name on the hub, or a llama2.c file.

    saccade import downloads/all-MiniLM-L6-v2 runs/minilm

    saccade import stories260K.bin runs/stories --tokenizer tok512.bin

    A directory with pickled weights (pytorch_model.bin) is refused, since a pickle can run code when it is read; with
    --convert it is read in a process of its own, tensors only, with limits on memory and time.

    Args:
        source: A directory, a name on the hub, or a file.
        run: The directory to write; it must not exist yet.
        tokenizer: The tokenizer of a llama2.c file (tok512.bin).
        convert: Read pickled weights, tensors only, in a process of its own.
    """
    if run.exists():
        _refuse(f"{run} exists already; name a new directory.", 2)
    from saccade.models.load import load, save

    try:
        path = Path(source)
        if path.is_file():
            model = _file(path, tokenizer)
        else:
            if convert:
                from saccade.models.convert import converted

                with converted(path) as clean:
                    model = load(clean)
            else:
                model = load(source)
        print(model.report)
        save(model, run / "model")
    except ValueError as error:
        _refuse(str(error), 4)
    print(f"written    {run}")
    return 0


def _file(path: Path, tokenizer: Path | None):
    """A single file, told by content."""
    from saccade import text
    from saccade.models import files, llama, llama2c
    from saccade.models.load import Model, Report

    if files.pickled(path):
        raise ValueError(f"{path}: is a pickle; put it into a directory with its config.json and use --convert.")
    config, tensors = llama2c.read_llama2c(path)
    body = llama.FAMILY.build(config)
    body.load_state_dict(tensors, strict=False)
    model = Model(llama.FAMILY, config, body).eval()
    model.tokenizer = None if tokenizer is None else text.from_llama2c(tokenizer)
    count = sum(p.numel() for p in body.parameters())
    model.report = Report(f"{len(tensors)} tensors, {count / 1e6:,.2f} M parameters, as llama from {path}")
    return model


def _refuse(said: str, code: int) -> NoReturn:
    print(f"saccade import: {said}", file=sys.stderr)
    raise SystemExit(code)
