"""Plugins: what they register is known everywhere, their errors name file and line, and nothing loads one without being asked."""

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

import saccade
from saccade import plugins
from saccade.attention import MECHANISMS, Mechanism, MechanismEntry, get_mechanism
from saccade.cli import main
from saccade.errors import ModelError, UsageError
from saccade.models.load import load
from saccade.plugins import check_plugins, load_plugin, load_plugins, request_plugins, requested_plugins
from saccade.tasks.registry import TASKS, task_class
from saccade.tasks.runs.run import open_run

pytestmark = pytest.mark.usefixtures("unregistered")
TEMPERED = '''"""softmax(q·k / t), with a learned temperature t for each head."""
import torch
import saccade
from saccade.attention import Mechanism, MechanismEntry

class Tempered(Mechanism):
    def __init__(self, heads):
        super().__init__()
        self.temperature = torch.nn.Parameter(torch.full((heads, 1, 1), 2.0))

    def scores(self, q, k):
        return q @ k.mT / self.temperature

def oracle(module, q, k, mask, head):
    return torch.softmax(q @ k.T / module.temperature[head] + mask, -1)

saccade.register(
    mechanism=MechanismEntry("tempered", lambda width, heads, length: Tempered(heads), "softmax(q·k / t)", oracle=oracle)
)
'''
TASK = '''"""Text regression with the Huber loss."""
import torch.nn.functional as F
import saccade
from saccade.tasks.grade import Grade

class RobustGrade(Grade):
    name, aliases, verb = "robust_grade", ("huber",), "robust_grade"
    description = "text regression with the Huber loss"

    def loss(self, model, batch):
        return F.huber_loss(model(batch).squeeze(-1), batch.gold, reduction="sum")

saccade.register(task=RobustGrade)
'''
TINY = ["--model.width", "16", "--model.layers", "1", "--model.heads", "2", "--model.ffn-width", "16"]
TRAIN = ["train", "label", "--family", "transformer_encoder", "--model.mechanism", "tempered", *TINY]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty directory outside of the tree, with a plugin in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SACCADE_PLUGINS", raising=False)
    Path("tempered.py").write_text(TEMPERED, encoding="utf-8")
    return tmp_path


def run(capsys, *command, code=0):
    capsys.readouterr()
    found = main(list(command))
    printed = capsys.readouterr()
    assert found == code, (command, printed)
    return printed.out if code == 0 else printed.err


def test_every_command_knows_the_mechanism_of_a_file(here, capsys):
    """Trained, watched, compared and opened again, from outside of the tree, with no further line."""
    assert "tempered" in run(capsys, "--plugin", "tempered.py", "mechanisms")
    run(capsys, *TRAIN, "--plugin", "tempered.py", "--out", "runs/t", "--train.max-steps", "2")
    assert "Tempered" in json.dumps([type(m).__name__ for m in open_run("runs/t").model.modules()])
    assert "layer" in run(capsys, "look", "runs/t", "A cat sat.", "--plugin=tempered.py").lower()
    assert "the mechanism tempered (tempered.py)" in run(capsys, "train", "--help", "--plugin", "tempered.py")
    wrong = [word.replace("tempered", "temperd") for word in TRAIN]
    assert "did you mean 'tempered'?" in run(capsys, *wrong, "--plugin", "tempered.py", "--out", "x", code=2)
    config = Path("runs/t/config.toml").read_text(encoding="utf-8")
    assert '[run.plugins."tempered.py"]\nmechanism = [\n    "tempered",\n]' in config
    stored = json.loads(Path("runs/t/model/config.json").read_text(encoding="utf-8"))
    assert stored["saccade_plugins"] == {"tempered.py": {"mechanism": ["tempered"]}}


def test_a_task_of_a_file_has_its_command_and_its_aliases(here, capsys):
    Path("tasks.py").write_text(TASK, encoding="utf-8")
    built_in_first = [task.name for task in TASKS]
    run(capsys, "train", "huber", "--plugin", "tasks.py", "--out", "runs/r", "--train.max-steps", "2", *TINY)
    assert float(run(capsys, "robust_grade", "runs/r", "five stars", "--plugin", "tasks.py").split()[0])
    assert [task.name for task in TASKS] == ["robust_grade", *built_in_first]
    model = open_run("runs/r").model
    assert saccade.open_run("runs/r").task.name == "robust_grade"
    Path("runs/r/config.toml").unlink()  # the model alone: saccade's own task comes first
    assert open_run("runs/r/model").task.name == "grade"
    assert model.labels == ("score",)


def test_a_model_of_published_form_records_the_plugins_too(here):
    load_plugin("tempered.py")
    from saccade.models.family import Family
    from saccade.models.registry import get_family

    bert = get_family("bert")
    mine = Family(**{**vars(bert), "name": "my_bert", "short_names": ()})
    saccade.register(family=mine)
    model = saccade.new("my_bert", vocab=11, width=8, layers=1, heads=2, ffn_width=8)
    config = json.loads((model.save(here / "m") / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == "my_bert"
    assert config["saccade_plugins"] == {__name__: {"family": ["my_bert"]}}
    assert "saccade_plugins" not in json.loads((saccade.new("bert").save(here / "b") / "config.json").read_text())


def test_a_run_without_its_plugin_says_which_one(here, capsys):
    from support.registries import registries_as_before

    with registries_as_before():
        run(capsys, *TRAIN, "--plugin", "tempered.py", "--out", "runs/t", "--train.max-steps", "2")
    expected = "uses the mechanism 'tempered' of the plugin tempered.py, which is not loaded; pass --plugin tempered.py"
    for command in (["predict", "runs/t", "hello"], ["evaluate", "runs/t"], ["look", "runs/t", "hello"]):
        assert f"runs/t {expected}" in run(capsys, *command, code=4)
    assert f"runs/t/model {expected}" in run(capsys, "predict", "runs/t/model", "hello", code=4)
    with pytest.raises(ModelError, match="load only one that you trust"):
        saccade.load("runs/t")
    assert "label" in run(capsys, "predict", "runs/t", "hello", "--json", "--plugin", "tempered.py")


def test_opening_a_run_never_runs_the_code_that_it_names(here, monkeypatch, capsys):
    """A directory from a stranger: its plugin lies beside it, in it, and on the path, and is not touched."""
    from support.registries import registries_as_before

    with registries_as_before():
        run(capsys, *TRAIN, "--plugin", "tempered.py", "--out", "runs/t", "--train.max-steps", "2")
    evil = "from pathlib import Path\nPath('ran').touch()\n" + TEMPERED
    for path in (here, here / "runs", here / "runs/t", here / "runs/t/model"):
        (path / "tempered.py").write_text(evil, encoding="utf-8")
        monkeypatch.syspath_prepend(str(path))
    (here / "runs/t/tempered").mkdir()
    (here / "runs/t/tempered/__init__.py").write_text(evil, encoding="utf-8")
    for opening in (open_run, load, saccade.load, lambda path: saccade.open_run(path).predict("x")):
        with pytest.raises(ModelError, match="tempered"):
            opening("runs/t")
    for command in (["predict", "runs/t", "x"], ["evaluate", "runs/t"], ["train", "label", "--model", "runs/t"]):
        run(capsys, *command, code=4)
    assert not (here / "ran").exists()
    run(capsys, "mechanisms", "--plugin", "tempered.py")
    assert (here / "ran").exists(), "the file does run if it is asked for"


@pytest.mark.parametrize(
    "recorded",
    [
        {"/tmp/evil.py": {"mechanism": ["x"]}},
        {"../evil.py": {"mechanism": ["x"]}},
        {"-evil.py": {"mechanism": ["x"]}},
        {"evil.py": {"mechanism": ["../x\x1b"]}},
        {"evil.py": {"mechanism": [3]}},
        {"evil.py": ["mechanism"]},
        {"evil.py": {"mechanism": 3}},
        ["evil.py"],
        3,
    ],
)
def test_a_damaged_table_of_plugins_is_refused(recorded):
    with pytest.raises(ModelError, match="runs/x: its table of plugins is damaged"):
        check_plugins(recorded, "runs/x")


def test_what_was_registered_in_a_notebook_is_asked_for_again():
    with pytest.raises(ModelError, match=r"'mine', which was registered with saccade\.register; register it again"):
        check_plugins({"notebook": {"mechanism": ["mine"]}}, "runs/x")


BROKEN = {
    "syntax": ("x = 1\ndef f(:\n", r"SyntaxError at \S*broken\.py:2"),
    "import": ("\n\nimport a_library_that_is_not_there\n", r"ModuleNotFoundError at \S*broken\.py:3: No module named"),
    "error": ("x = 1\ny = x / 0\n", r"ZeroDivisionError at \S*broken\.py:2"),
    "exit": ("import sys\nsys.exit('bye')\n", r"SystemExit at \S*broken\.py:2: bye"),
    "entry": ("import saccade\nsaccade.register(mechanism=3)\n", r"broken\.py:2: register\(mechanism=\.\.\.\) needs"),
    "built-in name": (
        "import saccade\nfrom saccade.attention import get_mechanism\n\nsaccade.register(mechanism=get_mechanism('dot'))\n",
        r"broken\.py:4: The mechanism 'dot' is one of saccade's own; choose another name\.",
    ),
    "nothing": ("import saccade\nsaccade.register()\n", r"broken\.py:2: saccade\.register needs an entry"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_error_in_a_plugin_names_file_and_line(name, here, capsys):
    text, words = BROKEN[name]
    Path("broken.py").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=rf"The plugin broken\.py cannot be loaded: .*{words}"):
        load_plugin("broken.py")
    error = run(capsys, "mechanisms", "--plugin", "broken.py", code=2)
    assert error.startswith("saccade: The plugin broken.py cannot be loaded: ")
    assert error.count("\n") == 1
    Path("broken.py").write_text("", encoding="utf-8")
    load_plugin("broken.py")  # mended


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere.py", "there is no file nowhere.py"),
        ("no_such_module", "there is no module 'no_such_module' in"),
        ("a,b.py", "a name that a run cannot record"),
        ("a\nb.py", "a name that a run cannot record"),
    ],
)
def test_a_plugin_that_is_not_there(here, name, words):
    with pytest.raises(UsageError, match=words):
        load_plugin(name)


def test_a_flag_without_a_value(here, capsys):
    assert "--plugin needs a value" in run(capsys, "mechanisms", "--plugin", code=2)
    assert "--plugin needs a value" in run(capsys, "--plugin", "--json", "mechanisms", code=2)


def test_an_error_in_the_code_of_a_plugin_points_at_it(here, capsys):
    text = TEMPERED.replace("return q @ k.mT / self.temperature", "return q @ k.mT / self.temprature")
    Path("wrong.py").write_text(text, encoding="utf-8")
    error = run(capsys, *TRAIN, "--plugin", "wrong.py", "--out", "x", code=1)
    line = text.splitlines().index("        return q @ k.mT / self.temprature") + 1
    assert f"The error passes through a plugin, at {Path('wrong.py').resolve()}:{line}: look there first." in error
    assert "bug in saccade" not in error


def test_a_package_directory_and_a_module_name(here):
    Path("lab").mkdir()
    Path("lab/__init__.py").write_text("from . import mechanism\n", encoding="utf-8")
    Path("lab/mechanism.py").write_text(TEMPERED, encoding="utf-8")
    load_plugin("lab")
    assert plugins.REGISTRATIONS["mechanism", "tempered"].plugin == "lab"
    assert load_plugin(f".{os.sep}lab") is sys.modules["lab"]  # by its path: the module that is there already


def test_a_file_is_loaded_once_and_two_files_of_one_name_are_two(here):
    assert load_plugin("tempered.py") is load_plugin(str(here / "tempered.py"))
    Path("other").mkdir()
    Path("other/tempered.py").write_text("x = 1\n", encoding="utf-8")
    Path("json.py").write_text("x = 2\n", encoding="utf-8")
    assert load_plugin("other/tempered.py").x == 1
    assert load_plugin("json.py").x == 2
    assert json.loads("3") == 3


def test_the_environment_variable_and_child_processes(here, monkeypatch):
    monkeypatch.setenv("SACCADE_PLUGINS", "tempered.py, ")
    with request_plugins(["more.py", "tempered.py"]):
        assert requested_plugins() == ["tempered.py", "more.py"]
    assert os.environ["SACCADE_PLUGINS"] == "tempered.py, "
    monkeypatch.delenv("SACCADE_PLUGINS")
    with request_plugins(["tempered.py"]):
        from saccade.bench.measure import OK, BenchCase, run_case

        case = BenchCase("tempered", 8, width=8, heads=2, repeats=1)
        assert run_case(case).status == OK
    assert "SACCADE_PLUGINS" not in os.environ
    assert "Unknown mechanism 'tempered'" in run_case(case).reason


def test_python_loads_the_requested_plugins_at_first_use(here, monkeypatch):
    monkeypatch.setenv("SACCADE_PLUGINS", "tempered.py")
    model = saccade.new("transformer_encoder", vocab=11, width=8, layers=1, heads=2, ffn_width=8, mechanism="tempered")
    assert "body.stack.layers.0.attention.branch.mechanism.temperature" in model.state_dict()


def test_entry_points_of_installed_packages(here, monkeypatch):
    monkeypatch.syspath_prepend(str(here))
    found = [EntryPoint("tempered", "tempered", "saccade.plugins")]
    monkeypatch.setattr(plugins, "entry_points", lambda group: found if group == "saccade.plugins" else [])
    load_plugins()
    load_plugins()
    assert get_mechanism("tempered").formula == "softmax(q·k / t)"
    assert plugins.REGISTRATIONS["mechanism", "tempered"].plugin == "tempered"


@pytest.mark.nightly
def test_every_process_of_a_distributed_training_loads_the_plugin(here):
    command = [
        sys.executable,
        "-m",
        "saccade",
        *TRAIN,
        "--plugin",
        "tempered.py",
        "--out",
        "runs/p",
        "--processes",
        "2",
    ]
    done = subprocess.run([*command, "--train.max-steps", "2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '[run.plugins."tempered.py"]' in Path("runs/p/config.toml").read_text(encoding="utf-8")


def test_shell_completion_completes_the_entries_of_a_plugin(here, capsys):
    assert " tempered" in run(capsys, "--plugin", "tempered.py", "--print-completion", "bash")


def test_help_loads_no_plugin(here):
    """The file is not even read, and torch is not imported."""
    Path("tempered.py").write_text("raise RuntimeError('loaded')\n", encoding="utf-8")
    code = "import sys; from saccade.cli import main; main(['--plugin', 'tempered.py', '--help']); print('torch' in sys.modules)"
    environment = {**os.environ, "SACCADE_PLUGINS": "tempered.py"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert "--plugin FILE|MODULE" in done.stdout


def make_entry(name="mine", **fields):
    return MechanismEntry(name, lambda width, heads, length: Mechanism(), "softmax(0)", **fields)


def test_registering_the_same_again_is_fine_and_another_is_refused():
    entry = make_entry()
    saccade.register(mechanism=entry)
    saccade.register(mechanism=entry)
    again = make_entry()  # a cell that is run twice makes a new object
    saccade.register(mechanism=again)
    assert [known for known in MECHANISMS if known.name == "mine"] == [again]
    line = plugins.REGISTRATIONS["mechanism", "mine"].location
    assert line.startswith(__file__)
    elsewhere = {"__name__": "elsewhere", "saccade": saccade, "entry": make_entry()}
    with pytest.raises(
        UsageError, match=rf"The mechanism 'mine' is registered already, at {line}; choose another name"
    ):
        exec("saccade.register(mechanism=entry)", elsewhere)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"mechanism": Mechanism}, r"needs a MechanismEntry; got the class Mechanism\. Write MechanismEntry\("),
        ({"mechanism": make_entry("My Name")}, r"The name of a mechanism is 'My Name'; write lower-case letters"),
        (
            {"mechanism": make_entry(supports=frozenset({"casual"}))},
            r"'casual', which is no feature; did you mean 'causal'",
        ),
        ({"mechanism": MechanismEntry("x", 3, "")}, "a function of width, heads and length is needed"),
        ({"position": make_entry()}, "needs a PositionEntry; got a value of type MechanismEntry"),
        ({"family": torch.nn.Linear}, "needs a Family; got the class Linear"),
        ({"task": "label"}, "needs a subclass of saccade.tasks.base.Task; got a value of type str"),
        ({"task": type("New", (task_class("label"),), {})}, r"The task '(classify|label)' is one of saccade's own"),
        (
            {"task": type("New", (task_class("label"),), {"name": "new"})},
            "The task 'classify' is one of saccade's own; choose another name",
        ),
    ],
)
def test_a_wrong_entry_is_refused(entries, words):
    before = list(MECHANISMS)
    with pytest.raises(UsageError, match=words):
        saccade.register(**entries)
    assert before == MECHANISMS
