"""The command line: quick, quiet, and its errors say what to do."""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from saccade import __version__
from saccade.cli import COMMANDS, main


def run(*args, **options):
    return subprocess.run([sys.executable, "-m", "saccade", *args], capture_output=True, text=True, **options)


def test_help_is_quick_and_does_not_import_torch():
    times = []
    for _ in range(3):  # by the processor's time, which other work on the machine does not take
        start = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run("--help")
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime)
    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS)
    assert min(times) < 0.5
    code = "import sys; from saccade.cli import main; main(['--help']); assert 'torch' not in sys.modules, 'torch was imported'"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_without_torch(name):
    code = (
        "import sys; from saccade.cli import main; code = main([sys.argv[1], '--help']);"
        "assert 'torch' not in sys.modules, 'torch was imported'; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"saccade {name}" in done.stdout


def test_version_and_wrong_calls(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"saccade {__version__}"
    assert main(["mechanism"]) == 2
    assert "did you mean 'mechanisms'?" in capsys.readouterr().err
    assert main(["mechanisms", "bigbrid"]) == 2
    assert "Unknown mechanism 'bigbrid'" in capsys.readouterr().err
    assert main(["mechanisms", "--tokns", "3"]) == 2
    assert "--tokens" in capsys.readouterr().err
    assert main(["mechanisms", "dot", "--tokens", "1"]) == 2
    assert "2 to 512" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["train", "find-lr"])
def test_every_task_is_named_where_one_is_asked_for(command, capsys):
    from saccade.tasks.registry import TASKS

    assert main([command]) == 2
    message = capsys.readouterr().err
    listed = re.search(r"Task \((.*?)\)", message, re.DOTALL)
    assert listed is not None
    names = {name.strip(" │\n") for name in listed.group(1).split(",")}
    assert names == {task.name for task in TASKS}


def test_mechanisms_lists_and_draws(tmp_path, capsys):
    from saccade.attention import MECHANISMS

    assert main(["mechanisms"]) == 0
    out = capsys.readouterr().out
    assert all(entry.name in out and entry.formula in out for entry in MECHANISMS)
    assert main(["mechanisms", "--json"]) == 0
    assert [line["name"] for line in json.loads(capsys.readouterr().out)] == [entry.name for entry in MECHANISMS]
    for entry in MECHANISMS:
        assert main(["mechanisms", entry.name, "--tokens", "12", "--out", str(tmp_path)]) == 0
        out = capsys.readouterr().out
        assert entry.formula in out
        assert "■" in out
        assert (tmp_path / f"{entry.name}.png").read_bytes().startswith(b"\x89PNG")
    assert main(["mechanisms", "windowed", "--tokens", "12", "--json"]) == 0
    weights = json.loads(capsys.readouterr().out)["weights"]["everything"]
    assert [sum(row) for row in weights] == pytest.approx([1.0] * 12)


def test_output_to_a_pipe_is_plain_text(tmp_path):
    done = run("mechanisms", "lsh", "--tokens", "8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout
    assert (tmp_path / "lsh.png").exists()


def test_the_tour_is_taken_to_its_end(tmp_path, capsys):
    assert main(["demo", "tour", "--out", str(tmp_path / "pictures")]) == 0
    out = capsys.readouterr().out
    assert len(list((tmp_path / "pictures").glob("*.png"))) == 10
    assert "equal bit for bit" in out
    assert "NOT" not in out
    assert "best of 9 rounds" in out


@pytest.mark.filterwarnings("ignore::saccade.render.fonts.FontWarning")  # it writes any character when it learnt little
def test_the_demo_trains_both_translators_and_draws_where_they_looked(tmp_path, capsys):
    assert main(["demo", "--minutes", "0.1", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.count("exact_match") >= 2
    assert out.count("3. Oktober 1990") == 2
    for name in ("dates", "dates-bahdanau"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
        assert (tmp_path / name / "report.html").exists()


def test_lazy_top_level():
    import saccade

    assert saccade.watch.__name__ == "watch"
    assert "check" in dir(saccade)
    with pytest.raises(AttributeError, match=r"it has DataError, .*check, cross_validate, embed"):
        saccade.wach  # noqa: B018


def test_the_wheel_installs_and_has_its_data_files(tmp_path):
    root = Path(__file__).parents[2]
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(root)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("saccade-*.whl")
    home = tmp_path / "site"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(home),
        str(wheel),
    ]
    subprocess.run(pip, check=True, capture_output=True)
    wanted = {
        p.relative_to(root / "src")
        for p in (root / "src" / "saccade").rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    assert all((home / path).exists() for path in wanted)
    assert Path("saccade/py.typed") in wanted
    code = (
        f"import saccade, sys; assert saccade.__file__.startswith({str(home)!r});"
        "from saccade.cli import main; sys.exit(main(['--version']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(home), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == f"saccade {__version__}", done.stderr
