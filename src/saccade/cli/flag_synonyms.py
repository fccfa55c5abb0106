"""Flags of `saccade train`: settings without their table, and the errors for flags of other tools and misspelt flags.

A setting of the table [train] may be given without its table: `--lr 1e-3` is `--train.lr 1e-3`. A flag of another tool is an
error that names the flag of saccade, because the meaning may differ in details: `--learning-rate` names `--train.lr`.
"""

import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from difflib import get_close_matches

from saccade.errors import UsageError
from saccade.setting_synonyms import SYNONYMS, describe_synonym


def normalize_flags(command: str, argv: Sequence[str], flag_class: type) -> list[str]:
    """The arguments of a training command, with settings under their full flags; exits with an error on an unknown flag."""
    from saccade.training.config import Config

    settings = [item.name for item in fields(Config)]
    command_flags = [item.name for item in fields(flag_class)]
    try:
        return expand_train_flags(argv, settings, command_flags)
    except UnknownFlag as error:
        task = argv[0] if argv and not argv[0].startswith("-") else "TASK"
        hint = describe_unknown_flag(error.flag, [*command_flags, *settings])
        print(f"saccade {command}: {error}{hint} saccade {command} {task} --help lists all flags.", file=sys.stderr)
        raise SystemExit(2) from None
    except UsageError as error:
        print(f"saccade {command}: {error}", file=sys.stderr)
        raise SystemExit(2) from None


class UnknownFlag(UsageError):
    """A flag that is neither one of saccade nor in SYNONYMS."""

    def __init__(self, flag: str):
        super().__init__(f"there is no flag {flag}")
        self.flag = flag


def expand_train_flags(argv: Sequence[str], settings: Collection[str], own: Collection[str]) -> list[str]:
    """Expand training settings to their full flags; a flag of another tool is an error that names the flag of saccade.

    `settings` are the fields of the table [train], `own` the flags of the command itself.

    >>> expand_train_flags(["label", "--lr", "1e-3", "--batch-size=8", "--out", "x"], ("lr", "batch_size"), ("out",))
    ['label', '--train.lr', '1e-3', '--train.batch-size=8', '--out', 'x']
    >>> expand_train_flags(["label", "--num_train_epochs", "3"], ("epochs",), ("out",))
    Traceback (most recent call last):
        ...
    saccade.errors.UsageError: there is no flag --num_train_epochs; use --train.epochs.
    """
    command_flags = {name.replace("_", "-") for name in own}
    train_flags = {name.replace("_", "-") for name in settings} - command_flags
    expanded: list[str] = []
    for word in argv:
        name, equals, value = word.partition("=")
        bare = name[2:].replace("_", "-") if name.startswith("--") else ""
        if bare in train_flags or bare.removeprefix("no-") in train_flags:
            expanded.append(f"--train.{bare}{equals}{value}")
        elif not bare or bare in command_flags or bare == "help" or "." in bare:
            expanded.append(word)
        elif bare in SYNONYMS:
            raise UsageError(f"there is no flag {name}{describe_synonym(bare)}")
        else:
            raise UnknownFlag(name)
    return expanded


def describe_unknown_flag(flag: str, known: Collection[str]) -> str:
    """The end of an error message about an unknown flag: a setting of that name in another table, or the nearest name.

    >>> describe_unknown_flag("--width", ("out", "lr")), describe_unknown_flag("--ot", ("out", "lr"))
    ('; use --model.width.', '; did you mean --out?')
    >>> describe_unknown_flag("--lerning-rate", ("out", "lr"))
    '; use --train.lr.'
    """
    from saccade.tasks.runs.setting_tables import find_setting_flags

    bare = flag.removeprefix("--").replace("_", "-")
    settings = find_setting_flags()
    if bare in settings:
        return f"; use {settings[bare]}."
    plain = {name.replace("_", "-"): f"--{name.replace('_', '-')}" for name in known}
    near = get_close_matches(bare, [*plain, *settings, *SYNONYMS], n=1)
    if not near:
        return "."
    if near[0] in plain or near[0] in settings:
        return f"; did you mean {plain.get(near[0]) or settings[near[0]]}?"
    return describe_synonym(near[0])


def check_dotted_flags(dotted: Iterable[str], known: Collection[str]) -> None:
    """Raise a UsageError for a dotted flag of another tool, such as --train.learning-rate, unless it is in `known` (train.lr)."""
    for word in dotted:
        name = word.partition("=")[0][2:].replace("_", "-") if word.startswith("--") else ""
        last = name.rpartition(".")[2]
        exists = {item.replace("_", "-") for item in known}
        if name and not {name, name.replace(".no-", ".")} & exists and last in SYNONYMS:
            raise UsageError(f"there is no flag --{name}{describe_synonym(last)}")
