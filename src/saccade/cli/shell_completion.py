"""`saccade --print-completion SHELL`: a shell script that completes commands, flags and names without starting Python."""

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, fields
from difflib import get_close_matches
from io import StringIO

SHELLS = ("bash", "zsh", "fish")
FLAG_PATTERN = re.compile(r"^(?:│ |  )(?:-h, )?(--[a-z][\w-]*)(?:, (--[a-z][\w-]*))?", re.MULTILINE)
INSTALL_HINTS = {
    "bash": 'add this line to ~/.bashrc:  eval "$(saccade --print-completion bash)"',
    "zsh": 'add this line to ~/.zshrc, after compinit:  eval "$(saccade --print-completion zsh)"',
    "fish": "run once:  saccade --print-completion fish > ~/.config/fish/completions/saccade.fish",
}


@dataclass(frozen=True)
class Completions:
    """The words that a completion script completes."""

    commands: Mapping[str, str]  # name -> description
    flags: Mapping[str, Sequence[str]]  # of each command
    first_arguments: Mapping[str, Sequence[str]]  # of each command or action
    families: Sequence[str]
    setting_flags: Sequence[str]  # dotted flags of the training commands


def print_completion(shell: str, commands: Mapping[str, str]) -> int:
    """Print the script for a shell; instructions go to standard error, so that the script can be piped."""
    if shell not in SHELLS:
        near = get_close_matches(shell, SHELLS, n=1)
        hint = f"did you mean {near[0]!r}? Known" if near else "known"
        print(f"saccade --print-completion: unknown shell {shell!r}; {hint} are {', '.join(SHELLS)}.", file=sys.stderr)
        return 2
    known = collect_completions(commands)
    print(render_fish(known) if shell == "fish" else render_bash(known, zsh=shell == "zsh"), end="")
    if sys.stdout.isatty():
        print(INSTALL_HINTS[shell], file=sys.stderr)
    return 0


def collect_completions(commands: Mapping[str, str]) -> Completions:
    """Collect the words from the current tables; the script has to be printed again after an upgrade."""
    from saccade.attention import MECHANISMS
    from saccade.cli.commands.bench import SUBJECTS
    from saccade.cli.train_flags import load_recipes
    from saccade.data.samples import SAMPLES
    from saccade.models.registry import FAMILIES
    from saccade.tasks.registry import TASKS
    from saccade.training.config import Config

    families = [family.name for family in FAMILIES]
    tasks_and_recipes = [*(task.name for task in TASKS), *load_recipes()]
    first_arguments = {
        "train": tasks_and_recipes,
        "find-lr": tasks_and_recipes,
        "models": families,
        "mechanisms": [entry.name for entry in MECHANISMS],
        "recipes": ["show"],
        "show": list(load_recipes()),
        "data": ["check", "split", "get"],
        "get": list(SAMPLES),
        "bench": [*SUBJECTS, "quality"],
    }
    tables = {"train": [Config], "task": [task.Config for task in TASKS], "model": [f.config_class for f in FAMILIES]}
    dotted = {
        f"--{table}.{item.name.replace('_', '-')}"
        for table, config_classes in tables.items()
        for config_class in config_classes
        for item in fields(config_class)
    }
    flags = {name: sorted([*list_flags([name]), "--plugin"]) for name in commands}
    flags["bench"] = sorted({*flags["bench"], *list_flags(["bench", "quality"])})
    return Completions(commands, flags, first_arguments, families, sorted(dotted))


def list_flags(command: Sequence[str]) -> list[str]:
    """The flags of a command, parsed from its --help, so that no second list has to be kept."""
    from saccade.cli import main

    output = StringIO()
    with redirect_stdout(output):
        main([*command, "--help"])
    return sorted({flag for pair in FLAG_PATTERN.findall(output.getvalue()) for flag in pair if flag})


BASH_TEMPLATE = """\
# shell completion of saccade, printed by saccade --print-completion
_saccade() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" names=""
    case "$before" in
        --model) names="{families}" ;;
        {first}
    esac
    if [ "$COMP_CWORD" -gt 2 ] && [ "${{COMP_WORDS[1]}}" = bench ]; then
        names=""  # an argument of bench is no command
    fi
    if [ "$COMP_CWORD" -eq 1 ]; then
        names="{commands}"
    elif [ "${{word#-}}" != "$word" ]; then
        case "${{COMP_WORDS[1]}}" in
            {flags}
        esac
        case "${{COMP_WORDS[1]}} $word" in
            "train --model."*|"train --task."*|"train --train."*|"find-lr --model."*|"find-lr --task."*|"find-lr --train."*)
                names="{settings}" ;;
        esac
    fi
    COMPREPLY=( $(compgen -W "$names" -- "$word") )
}}
complete -o bashdefault -o default -F _saccade saccade
"""


def render_bash(completions: Completions, *, zsh: bool = False) -> str:
    """The script for bash 3.2 or later, and for zsh through bashcompinit; other arguments are completed as file names."""
    first = [f'{word}) names="{" ".join(names)}" ;;' for word, names in completions.first_arguments.items()]
    flags = [f'{name}) names="{" ".join(names)}" ;;' for name, names in completions.flags.items()]
    script = BASH_TEMPLATE.format(
        families=" ".join(completions.families),
        first=f"\n{' ' * 8}".join(first),
        flags=f"\n{' ' * 12}".join(flags),
        commands=" ".join([*completions.commands, "--help", "--version", "--print-completion"]),
        settings=" ".join(completions.setting_flags),
    )
    return f"autoload -U +X bashcompinit && bashcompinit\n{script}" if zsh else script


def render_fish(completions: Completions) -> str:
    """The script for fish, one line per completion; fish completes file names by itself."""
    lines = ["# shell completion of saccade, printed by saccade --print-completion"]
    for name, description in completions.commands.items():
        lines.append(f"complete -c saccade -f -n __fish_use_subcommand -a {name} -d '{_quote(description)}'")
    for name, flags in completions.flags.items():
        condition = f"-n '__fish_seen_subcommand_from {name}'"
        for flag in flags:
            families = f" -x -a '{' '.join(completions.families)}'" if flag == "--family" else ""
            lines.append(f"complete -c saccade {condition} -l {flag.removeprefix('--')}{families}")
    for word, names in completions.first_arguments.items():
        lines.append(f"complete -c saccade -n '__fish_seen_subcommand_from {word}' -a '{' '.join(names)}'")
    for flag in completions.setting_flags:
        lines.append(f"complete -c saccade -n '__fish_seen_subcommand_from train find-lr' -l {flag.removeprefix('--')}")
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
