"""`saccade --print-completion SHELL`: a script that completes commands, flags and names. It never starts Python itself."""

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
    "bash": 'put this into ~/.bashrc:  eval "$(saccade --print-completion bash)"',
    "zsh": 'put this into ~/.zshrc, after compinit:  eval "$(saccade --print-completion zsh)"',
    "fish": "run once:  saccade --print-completion fish > ~/.config/fish/completions/saccade.fish",
}


@dataclass(frozen=True)
class Completions:
    """All that a script can complete."""

    commands: Mapping[str, str]  # name -> what it is for
    flags: Mapping[str, Sequence[str]]  # of each command
    first_arguments: Mapping[str, Sequence[str]]  # what may follow a command at once
    families: Sequence[str]
    setting_flags: Sequence[str]  # dotted flags of the commands that train


def print_completion(shell: str, commands: Mapping[str, str]) -> int:
    """Print the script for a shell; how to use it goes to the error stream, so that the script can be piped."""
    if shell not in SHELLS:
        near = get_close_matches(shell, SHELLS, n=1)
        hint = f"did you mean {near[0]!r}? Known" if near else "known"
        print(f"saccade --print-completion: no shell {shell!r}; {hint} are {', '.join(SHELLS)}.", file=sys.stderr)
        return 2
    known = collect_completions(commands)
    print(render_fish(known) if shell == "fish" else render_bash(known, zsh=shell == "zsh"), end="")
    if sys.stdout.isatty():
        print(INSTALL_HINTS[shell], file=sys.stderr)
    return 0


def collect_completions(commands: Mapping[str, str]) -> Completions:
    """The tables as they are now; after an upgrade the script is printed again."""
    from saccade.attention import MECHANISMS
    from saccade.cli.commands.bench import SUBJECTS
    from saccade.cli.train_flags import load_recipes
    from saccade.data.samples import SAMPLES
    from saccade.models.registry import FAMILIES
    from saccade.tasks.registry import TASKS
    from saccade.training.config import Config

    families = [family.name for family in FAMILIES]
    trained = [*(task.name for task in TASKS), *load_recipes()]
    first = {
        "train": trained,
        "find-lr": trained,
        "models": families,
        "mechanisms": [entry.name for entry in MECHANISMS],
        "recipes": ["show"],
        "show": list(load_recipes()),
        "data": ["check", "split", "get"],
        "get": list(SAMPLES),
        "bench": [*SUBJECTS, "quality"],
    }
    kinds = {"train": [Config], "task": [task.Config for task in TASKS], "model": [f.config_class for f in FAMILIES]}
    dotted = {
        f"--{table}.{item.name.replace('_', '-')}"
        for table, found in kinds.items()
        for kind in found
        for item in fields(kind)
    }
    flags = {name: list_flags([name]) for name in commands}
    flags["bench"] = sorted({*flags["bench"], *list_flags(["bench", "quality"])})
    return Completions(commands, flags, first, families, sorted(dotted))


def list_flags(command: Sequence[str]) -> list[str]:
    """The flags of a command, from its own help: there is no second list to forget."""
    from saccade.cli import main

    shown = StringIO()
    with redirect_stdout(shown):
        main([*command, "--help"])
    return sorted({flag for pair in FLAG_PATTERN.findall(shown.getvalue()) for flag in pair if flag})


BASH_TEMPLATE = """\
# completes saccade; printed by saccade --print-completion
_saccade() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" names=""
    case "$before" in
        --model) names="{families}" ;;
        {first}
    esac
    if [ "$COMP_CWORD" -gt 2 ] && [ "${{COMP_WORDS[1]}}" = bench ]; then
        names=""  # its train is not the command
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
    """For bash 3.2 and later; zsh reads the same through its own bridge. What is no name is completed as a file."""
    first = [f'{after}) names="{" ".join(names)}" ;;' for after, names in completions.first_arguments.items()]
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
    """One line for each thing; fish completes files where nothing else fits."""
    lines = ["# completes saccade; printed by saccade --print-completion"]
    for name, said in completions.commands.items():
        lines.append(f"complete -c saccade -f -n __fish_use_subcommand -a {name} -d '{_quote(said)}'")
    for name, found in completions.flags.items():
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        for flag in found:
            families = f" -x -a '{' '.join(completions.families)}'" if flag == "--model" else ""
            lines.append(f"complete -c saccade {seen} -l {flag.removeprefix('--')}{families}")
    for after, names in completions.first_arguments.items():
        lines.append(f"complete -c saccade -n '__fish_seen_subcommand_from {after}' -a '{' '.join(names)}'")
    for flag in completions.setting_flags:
        lines.append(f"complete -c saccade -n '__fish_seen_subcommand_from train find-lr' -l {flag.removeprefix('--')}")
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
