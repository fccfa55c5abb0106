"""Command-line interface: one file for each command, imported only when it is called, so that `--help` is fast."""

import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec

from saccade import __version__

COMMANDS = {  # name -> one line of help; the file of that name has `main`, or `call` if it parses its arguments itself
    "demo": "train two date translators and plot their attention",
    "train": "train a model on a data file; run the same command again to resume",
    "evaluate": "evaluate a model on labeled data, with confidence intervals",
    "predict": "predictions of a trained model, for any task",
    "embed": "sentence embeddings, and the nearest texts by cosine similarity",
    "label": "classification: a label for each text, image or sound",
    "grade": "text regression: a number for each text",
    "tag": "token classification: tag named entities in each text (NER)",
    "answer": "question answering: the span of a text that answers a question",
    "translate": "translate each text with a trained model",
    "summarize": "summarize each text with a trained model",
    "caption": "image captioning: a caption for each image",
    "transcribe": "speech recognition: the text that is spoken in each recording",
    "paint": "text-to-image generation: an image for each text",
    "generate": "continue a text with a language model",
    "look": "attention maps of a model, head by head, as a plot, an HTML page or JSON",
    "runs": "list the runs in a directory with their scores, training time, size and settings",
    "serve": "web viewer for models, on this machine only",
    "recipes": "training recipes with promised and measured results",
    "data": "check data files before training, split them, or get sample data",
    "find-lr": "learning-rate range test: suggest a learning rate",
    "models": "list the model families, or print the architecture of one",
    "import": "import a model from a directory, a file or the hub as a run",
    "audit": "bias and fairness audits with confidence intervals",
    "card": "write or check the model card",
    "export": "export a model with its model card for other programs",
    "mechanisms": "list the attention mechanisms (formula, cost, features), or plot one",
    "check": "test the invariants of attention on your own module",
    "study": "run an experiment, from its data to a table and a plot",
    "bench": "benchmark time and memory of attention, or the quality of quantized inference",
    "doctor": "check this machine and whether saccade works on it",
}
COMMAND_MODULES = {  # commands whose module has another name
    "import": "import_",
    "find-lr": "find_lr",
    "audit": "release.audit",
    "card": "release.card",
    "export": "release.export",
}
# flags that take any number of values: the parser would read a missing value as an empty list
LIST_FLAGS = ("data", "head", "layer", "out", "precisions", "prune", "query", "runs", "set", "suite", "trained-runs")
HELP_TEMPLATE = """saccade: attention and transformers you can train, watch, measure and compare

usage: saccade COMMAND ...          saccade COMMAND --help lists the options of a command

{commands}

  --version    print the version        --help    print this help
  --print-completion bash|zsh|fish      print a shell completion script
  --plugin FILE|MODULE                  load your own mechanisms, position schemes, families and tasks; may be repeated

exit codes: 0 success, 1 bug in saccade, 2 usage, 3 data, 4 model, 5 resources, 6 diverged, 130 and 143 interrupted
start with: saccade demo
"""


def format_usage() -> str:
    width = max(map(len, COMMANDS)) + 4
    return HELP_TEMPLATE.format(commands="\n".join(f"  {name.ljust(width)}{text}" for name, text in COMMANDS.items()))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words, plugins = split_plugin_flags(sys.argv[1:] if argv is None else argv)
    name, *rest = words or ["--help"]
    if name in ("-h", "--help", "help"):
        print(format_usage(), end="")
        return 0
    if name in ("-V", "--version"):
        print(f"saccade {__version__}")
        return 0
    if name == "--print-completion":
        from saccade.cli.shell_completion import print_completion

        return _run_with_plugins(plugins, lambda: print_completion(rest[0] if rest else "", COMMANDS))
    for stream in (sys.stdout, sys.stderr):  # a character that the terminal's encoding lacks is replaced
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        code = _run_with_plugins(plugins, lambda: _dispatch(name, rest))
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("saccade: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the pipe was closed, for example by `| head`; discard the rest of the output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # such as a read-only directory or a full disk
        print(f"saccade {name}: {error}", file=sys.stderr)
        return 5


def split_plugin_flags(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split arguments into those of the command, and the values of --plugin, which may stand before or after the command.

    >>> split_plugin_flags(["--plugin", "a.py", "train", "label", "--plugin=b"])
    (['train', 'label'], ['a.py', 'b'])
    >>> split_plugin_flags(["train", "--plugin", "--data", "x", "--", "--plugin"])  # a missing value is ""
    (['train', '--data', 'x', '--', '--plugin'], [''])
    """
    others: list[str] = []
    plugins: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*others, word, *rest], plugins
        if word == "--plugin":
            plugins.append(rest.pop(0) if rest and not rest[0].startswith("-") else "")
        elif word.startswith("--plugin="):
            plugins.append(word.removeprefix("--plugin="))
        else:
            others.append(word)
    return others, plugins


def _run_with_plugins(plugins: Sequence[str], work: Callable[[], int]) -> int:
    """Load the plugins, in child processes too, and run a command; an error in a plugin is a usage error."""
    from saccade.errors import UsageError
    from saccade.plugins import load_plugins, request_plugins

    if "" in plugins:
        print("saccade: --plugin needs a value: the path of a Python file, or the name of a module.", file=sys.stderr)
        return 2
    with request_plugins(plugins):
        try:
            load_plugins()
        except UsageError as error:
            print(f"saccade: {error}", file=sys.stderr)
            return 2
        return work()


def find_flag_without_value(args: Sequence[str]) -> str | None:
    """The first flag of LIST_FLAGS without a value, or with an empty one: `--data $FILE` if FILE is not set.

    >>> find_flag_without_value(["label", "--data", "--out", "x"]), find_flag_without_value(["--layer", "-1", "--data", "-"])
    ('--data', None)
    >>> find_flag_without_value(["--data", "a.tsv", ""]), find_flag_without_value(["--out="])
    ('--data', '--out')
    >>> find_flag_without_value(["--data=a.tsv"])
    """
    flag, count = "", 0  # the current flag and its number of values
    for word in [*args, "--"]:
        is_flag = word.startswith("-") and word != "-" and not word[1:2].isdigit()
        if flag and ((is_flag and not count) or not word):
            return flag
        if word == "--":
            return None
        if is_flag:
            name, equals, value = word.partition("=")
            flag, count = name if name.startswith("--") and name[2:] in LIST_FLAGS else "", int(bool(value))
            if flag and equals and not value:
                return flag
        else:
            count += 1
    return None


def _resolve_alias(name: str) -> str:
    """The prediction command of a task, by any name of the task: `classify` is `label`; "" if there is none."""
    from saccade.tasks.registry import TASKS

    return next((task.verb for task in TASKS if name in (task.verb, *task.aliases)), "")


def _dispatch(name: str, rest: list[str]) -> int:
    """Import the module of a command and call it; tyro ends invalid flags and --help in SystemExit."""
    if name not in COMMANDS and (verb := _resolve_alias(name)):
        name = verb
    elif name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(COMMANDS)}."
        print(f"saccade: there is no command {name!r}; {hint} saccade --help describes them.", file=sys.stderr)
        return 2
    if flag := find_flag_without_value(rest):
        print(f"saccade {name}: {flag} needs a value; give one, or leave the flag out.", file=sys.stderr)
        return 2
    import tyro

    file = COMMAND_MODULES.get(name, name)
    module = import_module(f"saccade.cli.commands.{file if find_spec(f'saccade.cli.commands.{file}') else 'predict'}")
    try:
        if hasattr(module, "call") and name != "predict":
            return module.call(name, rest)
        return tyro.cli(module.main, prog=f"saccade {name}", args=rest) or 0
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2 if stop.code else 0
