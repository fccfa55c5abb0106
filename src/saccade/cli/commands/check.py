"""`saccade check package.module:factory`: test the invariants of attention on a module, or what a plugin registers."""

import json as encoder
import os
import sys
import traceback
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any, Literal, NoReturn

import tyro

from saccade.cli.argument_types import optional_argument

Factory = tyro.conf.Positional[Annotated[str, optional_argument("[PACKAGE.MODULE:FACTORY]")]]
Name = Annotated[str, optional_argument("NAME")]
Flag = tyro.conf.FlagCreatePairsOff[bool]


def main(
    factory: Factory = "",
    *,
    mechanism: Name = "",
    position: Name = "",
    family: Name = "",
    task: Name = "",
    causal: Flag = False,
    no_causal: Flag = False,
    padding: Literal["both", "right", "left", "none"] = "both",
    vocab: Annotated[int | None, optional_argument("INT")] = None,
    width: Annotated[int | None, optional_argument("INT")] = None,
    tokens: int = 11,
    json: Flag = False,
) -> int:
    """Test the invariants of attention on your own module, without data, training or a reference implementation.

    Seven invariants are tested: the output is deterministic; the rows of a batch are independent; no token changes an earlier
    output (causality); padding does not change the output; a query without visible keys gives no NaN; whether token order
    matters; gradients are finite. For a file mymodel.py with `def build(): return MyDecoder(width=64)`, run in its directory:

    saccade check mymodel:build --causal

    A registered mechanism, position scheme, family or task, such as one of a plugin, is tested for everything that its entry
    declares: for example, that a mechanism equals its formula, and its fast path its weights. Without a name, all entries of
    the plugin are tested:

    saccade check --plugin tempered.py

    saccade check --plugin tempered.py --mechanism tempered

    Exit code: 0 if all invariants hold, 4 if one fails, 2 if the module cannot be found or called.

    Args:
        factory: Factory of the module: a function or class that is called without arguments, or a built module.
        mechanism: Test this attention mechanism; saccade mechanisms lists them.
        position: Test this position scheme, such as rotary.
        family: Test this model family; saccade models lists them.
        task: Test this task on its built-in sample, such as label.
        causal: Require causality: no token may change an earlier output. Without either flag, causality is detected.
        no_causal: Require that the module is not causal. Without either flag, causality is detected.
        padding: Padding side to test: both, right, left or none.
        vocab: Vocabulary size, if the module takes token ids; default: detected.
        width: Input width, if the module takes vectors; default: detected.
        tokens: Number of tokens in the test inputs.
        json: Print the report as JSON.
    """
    if causal and no_causal:
        _refuse("--causal and --no-causal contradict each other; give one of them, or neither to detect it.")
    names = {"mechanism": mechanism, "position": position, "family": family, "task": task}
    if any(names.values()) or not factory:
        return _check_entries(factory, {kind: name for kind, name in names.items() if name}, json)
    build = import_factory(factory)
    from torch import nn  # imported late, so that --help and a misspelt name need no torch

    from saccade.checking.check import check

    try:
        module = build if isinstance(build, nn.Module) else build()
    except Exception as error:
        _refuse(f"Calling {factory} {_describe_error(error)}. Name a factory that takes no arguments.")
    claim = True if causal else False if no_causal else None
    try:
        report = check(module, vocab=vocab, width=width, causal=claim, padding=padding, length=tokens)
    except ValueError as error:
        _refuse(str(error))
    print(report.to_json() if json else report)
    return 0 if report.ok else 4


def _check_entries(factory: str, names: dict[str, str], json: bool) -> int:
    """Test the contracts of the named entries, or of everything that plugins have registered."""
    from saccade.cli.exit_codes import run_command
    from saccade.plugins import REGISTRATIONS

    entries = list(names.items()) or list(REGISTRATIONS)
    if factory:
        _refuse(f"Name either the factory {factory}, or entries such as --mechanism; not both.")
    if not entries:
        _refuse(
            "Name a factory (package.module:factory), a plugin (--plugin my.py), or an entry such as --mechanism dot."
        )

    def check_and_print() -> int:
        from saccade.checking.entries import check_entry

        reports = [check_entry(kind, name) for kind, name in entries]
        if json:
            print(encoder.dumps([report.to_dict() for report in reports], indent=2))
        else:
            print("\n\n".join(map(str, reports)))
        return 0 if all(report.ok for report in reports) else 4

    return run_command("check", check_and_print)


def import_factory(factory: str) -> Any:
    """Import `package.module:factory`; the current directory comes first in the search path."""
    module_name, _, name = factory.partition(":")
    if not (module_name and name):
        _refuse(f"{factory!r} does not name a factory; write package.module:factory, such as mymodel:build.")
    directory = os.getcwd()
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        target = import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            _refuse(
                f"There is no module {error.name!r} in {directory}, and none is installed; check name and directory."
            )
        _refuse(f"Importing {module_name} {_describe_error(error)}.")
    for part in name.split("."):
        if not hasattr(target, part):
            names = [known for known in vars(target) if not known.startswith("_")]
            near = get_close_matches(part, names, n=3, cutoff=0.5) or names[:5]
            _refuse(f"{module_name} has no {part!r}; the nearest names are {', '.join(near) or 'none'}.")
        target = getattr(target, part)
    return target


def _describe_error(error: Exception) -> str:
    """An error in the user's code in one line: its type, file, line and message."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    location = "" if frame.filename == __file__ else f" at {frame.filename}:{frame.lineno}"
    return f"raised {type(error).__name__}{location}: {error}"


def _refuse(message: str) -> NoReturn:
    print(f"saccade check: {message}", file=sys.stderr)
    raise SystemExit(2)
