"""The command line keeps its word: exit codes, nearest names, plain output, JSON, and a rehearsal that leaves no trace."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from saccade.cli import HELP_TEMPLATE, main

SIZES = {
    "model.width": 8,
    "model.layers": 1,
    "model.heads": 2,
    "model.ffn_width": 16,
    "train.epochs": 4,
    "train.batch_tokens": 64,
}
TINY = ["--task.tokenizer=characters", "--train.device=cpu", *(f"--{name}={value}" for name, value in SIZES.items())]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A directory of its own with a little data, a recipe and things that are wrong."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(
        f"{'good fine' if i % 2 else 'bad poor'} number {i}\t{'pos' if i % 2 else 'neg'}\n" for i in range(40)
    )
    Path("reviews.tsv").write_text("text\tlabel\n" + rows)
    Path("bad.tsv").write_text("text\tlabel\nonly a text\n" + rows)
    Path("mine.toml").write_text('[run]\ntask = "label"\ndata = ["reviews.tsv"]\n[train]\nlr = 0.003\n')
    Path("odd.toml").write_text('[run]\ntask = "label"\n[train]\nwramup = 0.1\n')
    Path("empty").mkdir()
    return tmp_path


def train(*more):
    return main(["train", "label", "--data", "reviews.tsv", *TINY, *more])


def diverge(monkeypatch):
    return train("--train.lr", "1e30", "--train.clip-grad-norm", "0", "--train.warmup", "0")


def resume_changed(monkeypatch):
    assert train("--out", "run", "--train.max-steps", "2") == 0
    return train("--out", "run", "--train.lr", "0.5")


def resized(monkeypatch):
    assert train("--out", "run", "--train.max-steps", "1") == 0
    return main(["train", "label", "--data", "reviews.tsv", "--model", "run", "--model.width", "9"])


def stopped_by(number):
    def stopped(monkeypatch):
        from saccade.training.loop import Learner

        step = Learner.step

        def signalled(self):
            done = step(self)
            if done.number == 3:
                signal.raise_signal(number)
            return done

        monkeypatch.setattr(Learner, "step", signalled)
        code = train("--out", "run")
        assert [path.name for path in Path("run/checkpoints").glob("step-*")] == ["step-00000003"]
        return code

    return stopped


def interrupted(monkeypatch):
    monkeypatch.setattr("saccade.cli.train_flags.load_recipes", lambda: signal.raise_signal(signal.SIGINT))
    return main(["recipes"])


def call(*words):
    return lambda monkeypatch: main(list(words))


# the code, what causes it, and words that the user must read
CODES = [
    (0, call("recipes"), "dates"),
    (0, call("train", "mine.toml", *TINY, "--train.max-steps", "2"), "finished after 2 steps"),
    (2, call("tarin"), "did you mean 'train'?"),
    (2, call("train", "labl"), "did you mean 'label'?"),
    (2, call("train", "datse"), "did you mean 'dates'?"),
    (2, call("train", "label", "--dat", "reviews.tsv"), "--data"),
    (2, call("train", "label", "--family", "bret"), "did you mean 'bert'?"),
    (2, call("find-lr", "label", "--family", "bret"), "did you mean 'bert'?"),
    (2, call("train", "label", "--model.widht", "8"), "--model.width"),
    (2, call("train", "label", "--train.wramup", "8"), "--train.warmup"),
    (2, call("train", "label", "--train.lr", "-1"), "must be above 0"),
    (2, call("train", "label", "--on-bad-record", "skpi"), "'error', 'skip'"),
    (2, call("find-lr", "label", "--train.wramup", "8"), "saccade find-lr label --help"),
    (2, call("train", "odd.toml"), "did you mean 'warmup'?"),
    (2, call("train", "none.toml"), "there is no such file"),
    (2, resized, "run is a trained model with width = 8, which cannot change to 9"),
    (2, call("models", "gtp2"), "did you mean 'gpt2'?"),
    (2, call("recipes", "show", "dattes"), "did you mean 'dates'?"),
    (2, call("recipes", "show"), "saccade recipes show NAME"),
    (2, call("audit", "label"), "label is a task; name the data to audit with --data"),
    (2, call("--print-completion", "fihs"), "did you mean 'fish'?"),
    (2, resume_changed, "in another directory with --out"),
    (3, call("train", "label", "--data", "bad.tsv"), "bad.tsv:2"),
    (3, call("find-lr", "label", "--data", "no.tsv"), "no.tsv"),
    (4, call("train", "label", "--data", "reviews.tsv", "--model", "empty"), "empty"),
    (4, call("evaluate", "empty"), "empty"),
    (4, call("audit", "emtpy"), "did you mean empty?"),
    (4, call("serve", "emtpy"), "did you mean empty?"),
    (5, lambda _: train("--out", "reviews.tsv/run"), "reviews.tsv"),
    (6, diverge, "Lower train.lr"),
    (130, stopped_by(signal.SIGINT), "run the same command to resume"),
    (130, interrupted, "saccade: interrupted."),
    (143, stopped_by(signal.SIGTERM), "run the same command to resume"),
]


@pytest.mark.parametrize(("code", "cause", "said"), CODES, ids=[f"{code} {said}" for code, _, said in CODES])
def test_every_exit_code_has_a_cause_and_says_what_to_do(code, cause, said, here, monkeypatch, capsys):
    assert cause(monkeypatch) == code
    out, err = capsys.readouterr()
    assert said in out + err
    assert "Traceback" not in out + err


def test_the_table_has_every_code_of_the_help():
    promised = {int(x) for x in re.findall(r"\b\d+\b", HELP_TEMPLATE.split("exit codes:")[1].split("\n")[0])}
    assert {code for code, _, _ in CODES} == promised - {1}  # 1 is a bug, which nobody can order


def test_print_config_is_toml_and_tells_where_each_value_came_from(here, capsys):
    asked = ["train", "mine.toml", *TINY, "--print-config"]
    assert main(asked) == 0
    text = capsys.readouterr().out
    text = text[text.index("[model]") :]
    lines = {line.split(" = ")[0]: line for line in text.splitlines()}
    assert lines["width"].endswith("# your flag")
    assert lines["lr"].endswith("# recipe")
    assert lines["vocab"].endswith("# chosen for this task and data")
    assert lines["clip_grad_norm"].endswith("# default")
    tables = tomllib.loads(text)
    assert (tables["model"]["width"], tables["train"]["lr"]) == (8, 0.003)
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {
        table: {k: v["value"] for k, v in rows.items() if v["value"] is not None} for table, rows in found.items()
    } == tables
    assert not Path("runs").exists()


def test_a_family_that_the_task_did_not_choose_keeps_its_defaults(here, capsys):
    from saccade.models.families.bert import Config

    assert main(["train", "mine.toml", "--family", "bert", "--model.layers", "1", "--print-config", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["model"]
    assert found["width"] == {"value": Config().width, "from": "default"}


def test_what_a_stored_model_drops_can_be_set_and_a_config_runs_again(here, capsys):
    assert train("--out", "first", "--train.max-steps", "1") == 0
    asked = ["train", "label", "--data", "reviews.tsv", "--model", "first", "--train.max-steps", "3"]
    assert main([*asked, "--model.dropout", "0.25", "--model.width", "8", "--out", "second"]) == 0
    capsys.readouterr()
    assert main([*asked, "--model.dropout", "0.25", "--print-config", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["model"]
    assert (found["dropout"], found["width"]["from"]) == ({"value": 0.25, "from": "your flag"}, "first")
    assert tomllib.loads(Path("second/config.toml").read_text())["model"]["dropout"] == 0.25
    assert main(["train", "second/config.toml", "--out", "third"]) == 0
    assert main([*asked, "--out", "undropped"]) == 0  # as it was stored
    weights = {name: Path(name, "model", "model.safetensors").read_bytes() for name in ("second", "third", "undropped")}
    assert weights["second"] == weights["third"] != weights["undropped"]
    assert main(["train", "label", "--model", "first", "--model.dropout", "1"]) == 2
    assert "dropout is 1.0; a rate of at least 0" in capsys.readouterr().err
    assert main(["train", "dates-bahdanau", "--model", "first"]) == 2  # whose sizes are for a new model
    assert "first is a trained model with width = 8, which cannot change to 128" in capsys.readouterr().err


def test_of_a_name_on_the_hub_no_more_is_fetched_than_a_wrong_call_needs(here, monkeypatch, capsys):
    assert train("--out", "run", "--train.max-steps", "1") == 0
    fetched = []

    def fetch(name, files=("everything",)):
        fetched.append((name, *files))
        return Path("run", "model")

    monkeypatch.setattr("saccade.models.io.hub.fetch", fetch)
    assert main(["train", "label", "--model", "org/name", "--train.wramup", "8"]) == 2
    assert fetched == []
    assert main(["train", "label", "--model", "org/name", "--model.width", "9"]) == 2
    assert fetched == [("org/name", "config.json")]
    assert "org/name is a trained model" in capsys.readouterr().err


MACHINES = [
    ["models", "--json"],
    ["mechanisms", "--json"],
    ["data", "check", "reviews.tsv", "--json"],
    ["train", "mine.toml", *TINY, "--dry-run", "--json"],
    ["train", "mine.toml", *TINY, "--train.max-steps", "1", "--json"],
    ["find-lr", "mine.toml", *TINY, "--json"],
]


@pytest.mark.parametrize("argv", MACHINES, ids=lambda argv: argv[0])
def test_json_is_all_that_a_program_reads(argv, here, capsys):
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)
    assert not set("\r\x1b") & set(out + err)


def test_plain_output_has_no_control_characters_and_survives_a_reader_that_leaves(here):
    short = ["train", "mine.toml", *TINY, "--train.max-steps", "3"]
    done = subprocess.run([sys.executable, "-m", "saccade", *short], capture_output=True, check=True)
    assert b"finished after" in done.stdout
    assert not {b"\r", b"\x1b"} & {bytes([byte]) for byte in done.stdout + done.stderr}
    with subprocess.Popen(
        [sys.executable, "-m", "saccade", "mechanisms", "dot", "--tokens", "300", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as cut:
        assert cut.stdout
        assert cut.stderr
        cut.stdout.read(1)
        cut.stdout.close()
        assert cut.stderr.read() == b""
        assert cut.wait() == 0


@pytest.mark.parametrize("argv", [["--help"], ["train", "--help"], ["find-lr", "--help"], ["doctor", "--help"]])
def test_help_costs_little_and_leaves_torch_alone(argv):
    code = (
        "import sys; from saccade.cli import main; code = main(sys.argv[1:]);"
        "assert not {'torch', 'numpy', 'fastapi'} & set(sys.modules); sys.exit(code)"
    )
    costs = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code, *argv], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(costs) < 0.5


AUDIT = """
import os, sys
sys.dont_write_bytecode = True
seen, spare = [], os.environ["TMPDIR"]
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
OUTSIDE = ("socket.__new__", "socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.fork")
def hook(event, args):
    writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if event in OUTSIDE or ((writes or event in CHANGES) and not str(args[0]).startswith(("/dev/", spare))):
        seen.append((event, str(args[0])))
sys.addaudithook(hook)
from saccade.cli import main
code = main(sys.argv[1:])
print(seen, file=sys.stderr)
sys.exit(code or bool(seen))
"""


def audited(spare, *argv):
    """Run a command under watch; for temporary files, where torch makes an empty directory, it has a place of its own."""
    own = {"TMPDIR": str(spare), "TORCHINDUCTOR_CACHE_DIR": str(spare / "torch")}
    done = subprocess.run([sys.executable, "-c", AUDIT, *argv], capture_output=True, text=True, env=os.environ | own)
    assert not [path for path in spare.rglob("*") if path.is_file()]
    return done


@pytest.mark.parametrize(
    "argv", [["train", "mine.toml", *TINY, "--dry-run"], ["find-lr", "mine.toml", *TINY]], ids=["dry-run", "find-lr"]
)
def test_a_rehearsal_writes_nothing_and_asks_nobody(argv, here, tmp_path_factory):
    spare = tmp_path_factory.mktemp("spare")
    before = {path: path.stat().st_mtime_ns for path in [here, *here.rglob("*")]}
    done = audited(spare, *argv)
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in [here, *here.rglob("*")]} == before


def test_the_watch_sees_a_command_that_writes(here, tmp_path_factory):
    done = audited(tmp_path_factory.mktemp("spare"), "data", "get", "dates", "a.tsv", "--count", "3")
    assert done.returncode == 1
    assert "a.tsv" in done.stderr


def completed(script, *words):
    """What bash would offer after these words."""
    test = f'source {script}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _saccade; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", test, "bash", *words], capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.split()


def test_bash_completes_commands_names_and_flags(tmp_path, capsys):
    from saccade.cli.train_flags import load_recipes
    from saccade.models.registry import FAMILIES
    from saccade.tasks.registry import TASKS

    assert main(["--print-completion", "bash"]) == 0
    script = tmp_path / "saccade.bash"
    script.write_text(capsys.readouterr().out)
    assert completed(script, "saccade", "tra") == ["train", "translate", "transcribe"]
    assert completed(script, "saccade", "doc") == ["doctor"]
    assert {*(task.name for task in TASKS), *load_recipes()} == set(completed(script, "saccade", "train", ""))
    assert completed(script, "saccade", "train", "label", "--model", "") == [family.name for family in FAMILIES]
    assert completed(script, "saccade", "train", "label", "--dr") == ["--dry-run"]
    assert completed(script, "saccade", "find-lr", "label", "--train.lr") == ["--train.lr"]
    assert completed(script, "saccade", "recipes", "show", "d") == [name for name in load_recipes() if name[0] == "d"]
    assert completed(script, "saccade", "train", "label", "--data", "x") == []  # so that bash completes files
    assert completed(script, "saccade", "bench", "") == ["attention", "quality"]
    assert completed(script, "saccade", "bench", "quality", "--prec") == ["--precisions"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_every_command(shell, capsys):
    from saccade.cli import COMMANDS

    assert main(["--print-completion", shell]) == 0
    out = capsys.readouterr().out
    assert all(re.search(rf"\b{name}\b", out) for name in COMMANDS)
    assert "--train.lr" in out or "-l train.lr" in out


def test_stopped_by_a_signal_from_outside(here):
    words = [sys.executable, "-m", "saccade", "train", "mine.toml", *TINY, "--train.epochs", "3000", "--out", "run"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as running:
        assert running.stdout
        for line in running.stdout:
            if line.startswith("step"):
                running.send_signal(signal.SIGTERM)
                break
        assert "checkpoint saved" in running.stdout.read()
        assert running.wait() == 143


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("run = 'label'", "'run' must be a table"),
        ("[run]\ntask = ['label']", "run.task must be a text"),
        ("[run]\ntask = 'label'\ndata = 'a.tsv'", "run.data must be a list of texts"),
        ("[run]\ntask = 'label'\ncolumns = [1]", "run.columns must be a table"),
        ("train = 3\n[run]\ntask = 'label'", "'train' must be a table"),
        ("a = " + "[" * 10_000, "nested too deeply"),
        ("a" + ".a" * 100_000 + " = 1", "nested too deeply"),
        ("[run", "hostile.toml:1: not TOML"),
    ],
)
def test_a_damaged_recipe_is_a_wrong_call(here, capsys, text, said):
    Path("hostile.toml").write_text(text, encoding="utf-8")
    assert main(["train", "hostile.toml"]) == 2
    assert said in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.parametrize("command", ["train", "find-lr"])
def test_the_name_of_a_family_is_no_pretrained_model(command, here, capsys):
    assert main([command, "label", "--data", "reviews.tsv", "--model", "gpt2"]) == 2
    err = capsys.readouterr().err
    for words in ("--family gpt2", "openai-community/gpt2 (548 MB, not on this machine)"):
        assert words in err
    assert main([command, "label", "--data", "reviews.tsv", "--model", "gpt2", "--family", "gpt2"]) == 2
    assert "Leave one of them out" in capsys.readouterr().err
