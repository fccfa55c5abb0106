"""`saccade check package.module:factory`: the invariants of attention, tested on your own module."""

import os
import sys
import traceback
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any, Literal, NoReturn

import tyro

Factory = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="PACKAGE.MODULE:FACTORY")]]
Flag = tyro.conf.FlagCreatePairsOff[bool]


def main(
    factory: Factory,
    *,
    causal: Flag = False,
    no_causal: Flag = False,
    padding: Literal["both", "right", "left", "none"] = "both",
    vocab: int | None = None,
    width: int | None = None,
    length: int = 11,
    json: Flag = False,
) -> int:
    """Test on your own attention module what must be true of any: it needs no data, no training and no reference.

    Seven things are tested: the same input gives the same output; rows of a batch do not mix; no token changes an output
    before it; padding changes nothing; a query that may see nothing gives no NaN; whether order matters; gradients are
    finite. For a file mymodel.py that has `def build(): return MyDecoder(width=64)`, run in its directory:
    saccade check mymodel:build --causal

    Exit code: 0 nothing fails, 4 an invariant fails, 2 the module could not be found or called.

    Args:
        factory: What builds the module; called without arguments, so a function, a class, or a built module will do.
        causal: Claim that the module looks only back; without a claim it is found out.
        no_causal: Claim that the module looks ahead as well.
        padding: The sides on which you pad.
        vocab: The module takes token ids below this number; without it, found out.
        width: The module takes vectors of this width; without it, found out.
        length: How many tokens to try it on.
        json: Print the report as JSON.
    """
    if causal and no_causal:
        _refuse("--causal and --no-causal claim opposite things; give one, or neither to find out.")
    build = find(factory)
    from torch import nn  # not before: --help and a misspelt name answer without torch

    from saccade.checking.check import check

    try:
        module = build if isinstance(build, nn.Module) else build()
    except Exception as error:
        _refuse(f"Calling {factory} {_told(error)}. Name something that builds the module without arguments.")
    claim = True if causal else False if no_causal else None
    try:
        report = check(module, vocab=vocab, width=width, causal=claim, padding=padding, length=length)
    except ValueError as error:
        _refuse(str(error))
    print(report.to_json() if json else report)
    return 0 if report.ok else 4


def find(factory: str) -> Any:
    """What `package.module:factory` names; the current directory is looked in first."""
    home, _, name = factory.partition(":")
    if not (home and name):
        _refuse(f"{factory!r} does not name a factory; write package.module:factory, such as mymodel:build.")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = import_module(home)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{home}.".startswith(f"{error.name}."):
            _refuse(
                f"There is no module {error.name!r} in {here} or among the installed; check the name or the directory."
            )
        _refuse(f"Importing {home} {_told(error)}.")
    for part in name.split("."):
        if not hasattr(found, part):
            names = [known for known in vars(found) if not known.startswith("_")]
            near = get_close_matches(part, names, n=3, cutoff=0.5) or names[:5]
            _refuse(f"{home} has no {part!r}; the nearest it has: {', '.join(near) or 'nothing'}.")
        found = getattr(found, part)
    return found


def _told(error: Exception) -> str:
    """An error in the user's own code: its kind and its place, in one line; a call that fits no signature has no place."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = "" if last.filename == __file__ else f" at {last.filename}:{last.lineno}"
    return f"raised {type(error).__name__}{place}: {error}"


def _refuse(said: str) -> NoReturn:
    print(said, file=sys.stderr)
    raise SystemExit(2)
