"""The command line: one file for each command, imported only when it is called, so that help answers at once."""

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec

from saccade import __version__

COMMANDS = {  # name -> one line of help; the file of that name has `main`, or `call` where it reads its arguments itself
    "demo": "train two translators of dates, watch them learn, and see where they look",
    "train": "a file in, a model out; the same command again goes on where it stopped",
    "evaluate": "how good a model is on data whose answers are known",
    "predict": "answers of any trained model",
    "label": "a label for each text",
    "grade": "a number for each text",
    "tag": "the names in each text",
    "answer": "the words of a text that answer a question",
    "translate": "each text in the other language",
    "summarise": "each text in a few words",
    "caption": "each picture in words",
    "paint": "a picture of each text",
    "generate": "go on with a text",
    "look": "where a model looked: head by head, as a picture or a page",
    "serve": "a page to look at models with, on this machine alone",
    "recipes": "the results we claim, each a short file that trains it",
    "data": "check a data file before training; or write a built-in sample to a file",
    "find-lr": "try learning rates from small to large and name a good one",
    "models": "every family of models, a line each; draw one by name",
    "import": "read a model from a file or a directory and write it down as a run",
    "audit": "what a model does to whom, measured, with intervals",
    "card": "the model card: what is known of a model, and what is not stated",
    "export": "write a model as a directory that other programs read, with its card",
    "mechanisms": "every attention mechanism: formula, cost, what it honours; draw one by name",
    "check": "test the invariants of attention on a module of your own",
    "study": "an experiment from its data to a table and a plot",
    "bench": "measure time and memory, and how they grow",
    "doctor": "what this machine has, and whether saccade works on it",
}
FILES = {"import": "bring_in", "find-lr": "find_lr"}  # where the name of a command is none of Python's
# flags that take any number of values: a parser would take none of them for the default
LISTS = (
    "cases",
    "data",
    "dropouts",
    "head",
    "layer",
    "precisions",
    "remove",
    "row",
    "runs",
    "scored",
    "suite",
    "out",
)
HELP = """saccade: attention and transformers you can train, watch, measure and compare

usage: saccade COMMAND ...          saccade COMMAND --help explains a command

{commands}

  --version    print the version        --help    print this
  --print-completion bash|zsh|fish      print a script that completes commands, flags and names

exit codes: 0 done, 1 a bug of ours, 2 a wrong call, 3 data, 4 model, 5 resources, 6 diverged, 130 and 143 stopped
start with: saccade demo
"""


def usage() -> str:
    wide = max(map(len, COMMANDS)) + 4
    return HELP.format(commands="\n".join(f"  {name.ljust(wide)}{said}" for name, said in COMMANDS.items()))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    name, *rest = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help", "help"):
        print(usage(), end="")
        return 0
    if name in ("-V", "--version"):
        print(f"saccade {__version__}")
        return 0
    if name == "--print-completion":
        from saccade.cli.completion import print_completion

        return print_completion(rest[0] if rest else "", COMMANDS)
    if name not in COMMANDS and (verb := _verb_of(name)):
        name = verb
    elif name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(COMMANDS)}."
        print(f"saccade: there is no command {name!r}; {hint}  saccade --help lists them.", file=sys.stderr)
        return 2
    for stream in (sys.stdout, sys.stderr):  # a terminal that lacks a character gets another, not an error
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        code = _call(name, rest)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("saccade: stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader went away, as `| head` does: what is left to say goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a directory that cannot be written, a full disk
        print(f"saccade {name}: {error}", file=sys.stderr)
        return 5


def missing_value(words: Sequence[str]) -> str | None:
    """The first flag that takes one or more values and has none, or an empty one: `--data $FILE` where FILE is not set.

    >>> missing_value(["label", "--data", "--out", "x"]), missing_value(["--layer", "-1", "--data", "-"])
    ('--data', None)
    >>> missing_value(["--data", "a.tsv", ""]), missing_value(["--data=a.tsv"]), missing_value(["--out="])
    ('--data', None, '--out')
    """
    flag, count = "", 0  # the last flag, and how many values it has
    for word in [*words, "--"]:
        is_flag = word.startswith("-") and word != "-" and not word[1:2].isdigit()
        if flag and ((is_flag and not count) or not word):
            return flag
        if word == "--":
            return None
        if is_flag:
            name, equals, value = word.partition("=")
            flag, count = name if name.startswith("--") and name[2:] in LISTS else "", int(bool(value))
            if flag and equals and not value:
                return flag
        else:
            count += 1
    return None


def _verb_of(name: str) -> str:
    """The command that asks a model of a task, by any name of the task: `classify` is `label`; "" where there is none."""
    from saccade.tasks.table import TASKS

    return next((task.verb for task in TASKS if name in (task.verb, *task.aliases)), "")


def _call(name: str, rest: list[str]) -> int:
    """The command's own file does the work; wrong flags and --help end in SystemExit."""
    if flag := missing_value(rest):
        print(f"saccade {name}: {flag} needs a value, and none came; leave it out or say one.", file=sys.stderr)
        return 2
    import tyro

    own = FILES.get(name, name)
    module = import_module(f"saccade.cli.{own if find_spec(f'saccade.cli.{own}') else 'predict'}")
    try:
        if hasattr(module, "call") and name != "predict":
            return module.call(name, rest)
        return tyro.cli(module.main, prog=f"saccade {name}", args=rest) or 0
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2 if stop.code else 0
