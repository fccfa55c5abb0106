"""`--help` of every command and setting: whole phrases, metavars that say what a value is, and the values of the call."""

import re
from dataclasses import fields

import pytest

from saccade.cli import COMMANDS, main
from saccade.cli.train_flags import make_request
from saccade.cli.train_help import DATA_DEFAULT, read_field_docs, resolve_settings
from saccade.decoding.config import GenerationConfig
from saccade.models.registry import FAMILIES
from saccade.recipes.recipe import load_recipes
from saccade.tasks.registry import TASKS
from saccade.training.config import Config

CALLS = [[name] for name in COMMANDS] + [
    ["bench", "quality"],
    ["train", "label"],
    ["train", "pretrain"],
    ["find-lr", "label"],
]
CONFIGS = [Config, GenerationConfig, *(task.Config for task in TASKS), *(family.config_class for family in FAMILIES)]
NAMES = [f"{kind.__module__.removeprefix('saccade.')}.{kind.__qualname__}" for kind in CONFIGS]
STANDARD_HELP = "show this help message and exit"  # of --help itself, as argparse words it


def print_help(argv, monkeypatch, capsys, columns=120):
    monkeypatch.setenv("COLUMNS", str(columns))
    capsys.readouterr()
    assert main([*argv, "--help"]) == 0
    return capsys.readouterr().out


def parse_entries(text):
    """(flags and metavar, description, hint in parentheses) of every argument in the groups of a help text."""
    groups = [[]]
    for line in text.splitlines():
        if re.match(r" +-+ *$", line):  # below the title of a group, and below its description
            groups[-1] = []
        elif re.match(r" \S", line):
            groups.append([])
        elif re.match(r"  \S", line):
            groups[-1].append(line.strip())
        elif re.match(r"   +\S", line) and groups[-1]:
            groups[-1][-1] += ("" if "  " in groups[-1][-1] else " ") + " " + line.strip()
    for entry in (entry for group in groups for entry in group):
        name, description, hint = re.fullmatch(r"(.+?)  +(.*?)(?: (\([^()]*\)))?", entry).groups()
        yield name, description, hint or ""


def check_phrase(text):
    """A phrase of at least four words that begins with a capital or a name in code, and ends as a sentence."""
    assert len(text.split()) >= 4, text
    assert re.match(r"[A-Z`0-9]", text), text
    assert text.endswith((".", ".)")), text
    assert text.count("(") == text.count(")"), text


@pytest.mark.parametrize("argv", CALLS, ids=" ".join)
def test_every_argument_is_described_by_a_phrase_and_a_metavar_that_says_what_it_is(argv, monkeypatch, capsys):
    entries = [entry for entry in parse_entries(print_help(argv, monkeypatch, capsys)) if entry[1] != STANDARD_HELP]
    assert entries
    for name, description, hint in entries:
        check_phrase(description)
        assert "STR" not in name, name
        assert "None" not in name, name
        assert hint not in ("(default: )", "(default: '')", "(default: None)"), name


@pytest.mark.parametrize("config_class", CONFIGS, ids=NAMES)
def test_every_setting_is_described_by_a_phrase(config_class):
    docs = read_field_docs(config_class)
    for item in fields(config_class):
        check_phrase(docs[item.name])


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", ["train", "find-lr"])
def test_help_of_a_task_fits_the_terminal_and_lists_the_main_settings_first(command, columns, monkeypatch, capsys):
    text = print_help([command, "label"], monkeypatch, capsys, columns)
    groups = text[text.index(" options ") :].splitlines()
    assert max(map(len, groups)) <= columns
    flags = re.findall(r"^  (--[a-z][\w.-]*)", text, re.MULTILINE)
    assert len(flags) == len(set(flags))
    main_flags = ["--data", "--model", "--columns", *(["--out"] if command == "train" else [])]
    main_flags += [f"--train.{name}" for name in ("epochs", "max-minutes", "batch-size", "batch-tokens", "lr", "seed")]
    assert flags[: len(main_flags)] == main_flags
    assert {f"--train.{item.name.replace('_', '-')}" for item in fields(Config)} < set(flags)
    assert {"--model.width", "--task.max-tokens"} < set(flags)


def find_hints(argv, monkeypatch, capsys):
    return {name.split()[0].rstrip(","): hint for name, _, hint in parse_entries(print_help(argv, monkeypatch, capsys))}


def test_help_shows_the_values_of_this_call(tmp_path, monkeypatch, capsys):
    hints = find_hints(["train", "label"], monkeypatch, capsys)
    assert hints["--train.batch-tokens"] == "(default for label: 2048)"
    assert hints["--train.weight-decay"] == "(default: 0.01)"
    assert hints["--family"] == "(default for label: transformer_encoder)"
    assert hints["--model.vocab"] == DATA_DEFAULT
    assert hints["--out"] == "(default: runs/label)"
    hints = find_hints(["train", "label", "--family", "bert", "--lr", "2e-4"], monkeypatch, capsys)
    assert hints["--train.lr"] == "(your value: 0.0002)"
    assert hints["--model.width"] == "(default: 768)"
    hints = find_hints(["train", "dates-bahdanau"], monkeypatch, capsys)
    assert hints["--model.width"] == "(recipe dates-bahdanau: 128)"


@pytest.mark.parametrize("name", [*(task.name for task in TASKS), *load_recipes()])
def test_every_task_and_recipe_has_a_help_with_its_settings(name, monkeypatch, capsys):
    hints = find_hints(["train", name], monkeypatch, capsys)
    assert {f"--train.{item.name.replace('_', '-')}" for item in fields(Config)} < set(hints)


def test_help_of_a_recipe_that_needs_data_says_so_and_lists_its_settings(monkeypatch, capsys):
    text = print_help(["train", "sst2"], monkeypatch, capsys)
    assert "The recipe sst2 needs --data FILE" in text
    assert "(recipe sst2: " in text
    assert "--model.width" not in text  # of the weights that are missing


def test_help_of_a_call_with_a_missing_file_says_so_and_is_shown_all_the_same(monkeypatch, capsys):
    text = print_help(["train", "label", "--data", "missing.tsv"], monkeypatch, capsys)
    assert "missing.tsv" in text
    assert "--train.lr FLOAT" in text


@pytest.mark.parametrize("task", ["label", "tag", "pair", "span", "language", "summarize", "regress"])
def test_the_values_of_the_help_are_those_of_the_training(task):
    from saccade.cli.commands.train import TrainFlags

    request = make_request("train", TrainFlags(task), ["--train.epochs", "3"])
    shown = resolve_settings(request)
    ready = request.prepare(lambda line: None)
    used = {"model": ready.model.config, "task": ready.task.config, "train": ready.config}
    for table, settings in shown.items():
        for name, setting in settings.items():
            if setting.hint != DATA_DEFAULT:
                assert setting.value == getattr(used[table], name), (table, name)


USUAL_NAMES = {  # a flag of another tool, and what is said to it
    "--learning-rate": "--train.lr",
    "--bf16": "--train.precision bfloat16",
    "--fp16": "--train.precision bfloat16",
    "--output-dir": "--out",
    "--num-workers": "without data loader workers",
    "--warmup-steps": "--train.warmup",
    "--max-length": "--task.max-tokens",
    "--max_seq_length": "--task.max-tokens",
    "--num-train-epochs": "--train.epochs",
    "--gradient-accumulation-steps": "--train.micro-batches",
    "--early-stopping": "--train.patience",
    "--train.learning-rate": "--train.lr",
    "--hidden-size": "--model.width",
    "--dropout": "--model.dropout",
    "--lerning-rate": "--train.lr",
    "--multi-lable": "--task.multi-label",
}


@pytest.mark.parametrize("flag", USUAL_NAMES)
def test_a_flag_of_another_tool_is_answered_with_ours(flag, capsys):
    assert main(["train", "label", flag, "1"]) == 2
    assert USUAL_NAMES[flag] in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--batch-size", "--lr", "--epochs", "--weight-decay", "--seed", "--batch_size"])
def test_a_flag_of_other_tools_with_the_same_name_works(flag, monkeypatch, capsys):
    hints = find_hints(["train", "label", flag, "3"], monkeypatch, capsys)
    name = f"--train.{flag.removeprefix('--').replace('_', '-')}"
    assert hints[name] in ("(your value: 3)", "(your value: 3.0)")


@pytest.mark.parametrize(
    "argv", [["--train.wramup", "8"], ["--train.lr", "abc"], ["--bogus", "1"], ["--model.widht", "8"]], ids=" ".join
)
def test_an_error_points_to_a_help_that_has_the_flag(argv, capsys):
    assert main(["train", "label", *argv]) == 2
    assert "saccade train label --help" in capsys.readouterr().err


def test_every_synonym_leads_to_a_flag_that_exists(monkeypatch, capsys):
    from saccade.setting_synonyms import SYNONYMS

    known = set(re.findall(r"(--[\w.-]+)", print_help(["train", "label"], monkeypatch, capsys)))
    for answer in SYNONYMS.values():
        for flag in re.findall(r"(--[\w.-]+)", answer):
            assert flag.rstrip(".") in known, answer
