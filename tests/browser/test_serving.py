"""The HTTP API: what it tells is what the library computes, and nothing that is sent to it does harm."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from urllib.request import urlopen

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

import saccade
from browser.served import MARKUP, rooms
from hostile.markup import hostile
from saccade import cli
from saccade.cli.commands.demo import DEFAULT_MINUTES
from saccade.cli.commands.demo import main as demo
from saccade.serving.app import make_app
from saccade.serving.demo_jobs import DEMO_NAMES, DemoJobs
from saccade.serving.report_parser import parse_samples
from saccade.serving.runs import RunFolder
from saccade.serving.security import MAX_REQUEST_BYTES
from saccade.training.checkpoint.run_lock import lock_run
from saccade.training.report import write_report
from saccade.training.runs.curves import collect_curves, find_last_loss, find_last_scores
from saccade.viewer import read_page_files

PATIENCE = 120  # seconds after which something hangs, however busy the machine is


@pytest.fixture(scope="module")
def known():
    return rooms()


@pytest.fixture
def client(known, tmp_path):
    run = tmp_path / "first"
    run.mkdir()
    lines = [{"step": 1, "loss": 3.5}, {"step": 2, "loss": 2.5, "note": "x", "good": True}]
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"step": 3, "lo', encoding="utf-8")
    (run / "report.html").write_text("<p>hello", encoding="utf-8")
    return TestClient(make_app(known, RunFolder(tmp_path)), base_url="http://127.0.0.1", raise_server_exceptions=False)


@pytest.mark.parametrize("name", ["reader", "writer", "translator"])
def test_what_is_told_is_what_is_computed(client, known, name):
    told = client.post(f"/api/look/{name}", json={"text": "the cat sat", "max_new_tokens": 5}).json()
    looks = saccade.look(known[name].model, "the cat sat", decoding=saccade.decoding.GenerationConfig(max_new_tokens=5))
    assert told["generated_text"] == looks.generated_text
    assert len(told["maps"]) == len(looks)
    for number, (one, seen) in enumerate(zip(told["maps"], looks, strict=True)):
        assert told["axes"][one["query_axis"]]["tokens"] == seen.query_names
        assert told["axes"][one["key_axis"]]["tokens"] == seen.key_names
        raw = client.get(f"/api/look/{name}/{told['look_id']}/{number}").content
        values = torch.from_numpy(np.frombuffer(raw, dtype="<f2").copy()).view(seen.weights.shape).float()
        torch.testing.assert_close(values, seen.weights, atol=1e-3, rtol=1e-3)
        if seen.sums_to_one:
            torch.testing.assert_close(values.sum(-1), torch.ones(values.shape[:-1]), atol=5e-3, rtol=0)
        heads = client.get(f"/api/heads/{name}/{told['look_id']}/{number}").json()
        assert [head["head"] for head in heads] == list(seen.heads)


def test_the_weights_of_words_and_of_values_are_those_of_the_library(client, known):
    text = "the cat sat"
    looks = saccade.look(known["reader"].model, text)
    for words in (False, True):
        told = client.post("/api/look/reader", json={"text": text, "merge_subwords": words}).json()
        assert (told["truncated_at"], told["truncated_input_tokens"], told["answer"]) == (None, 0, "")
        assert told["no_answer_reason"] == looks.no_answer_reason
        for measure in ("weight", "value_norm"):
            seen = looks[0].weight_by_value_norm() if measure == "value_norm" else looks[0]
            seen = seen.merge_subwords(looks.texts) if words else seen
            raw = client.get(f"/api/look/reader/{told['look_id']}/0?measure={measure}").content
            values = torch.from_numpy(np.frombuffer(raw, dtype="<f2").copy()).view(seen.weights.shape).float()
            torch.testing.assert_close(values, seen.weights, atol=1e-3, rtol=2e-3)
    assert client.get(f"/api/look/reader/{told['look_id']}/0?measure=beauty").status_code == 400


def test_a_window_of_a_long_text_is_not_pooled(client, known):
    text = "so it goes on " * 40
    told = client.post("/api/look/reader", json={"text": text, "first_query": 100}).json()
    whole = saccade.look(known["reader"].model, text)
    for number, seen in enumerate(whole):
        raw = client.get(f"/api/look/reader/{told['look_id']}/{number}").content
        values = torch.from_numpy(np.frombuffer(raw, dtype="<f2").copy()).view(len(seen.heads), 64, -1).float()
        torch.testing.assert_close(values, seen.weights[:, 100:164], atol=1e-3, rtol=1e-3)


def test_a_head_that_is_off_changes_the_rest_and_comes_back(client):
    ask = lambda off: client.post(
        "/api/look/translator", json={"text": "abcd", "max_new_tokens": 4, "disabled_heads": off}
    ).json()
    weights = lambda told: client.get(f"/api/look/translator/{told['look_id']}/{len(told['maps']) - 1}").content
    about = client.get("/api/about").json()["models"]["translator"]
    every = [head["name"] for head in about["heads"] if head["side"] == "encoder"]
    plain, quiet, again = ask([]), ask(every), ask([])
    assert weights(plain) == weights(again)
    assert weights(plain) != weights(quiet)


def test_old_looks_are_forgotten_by_name(client, known):
    first = client.post("/api/look/reader", json={"text": "a"}).json()["look_id"]
    for _ in range(7):
        client.post("/api/look/reader", json={"text": "a"})
    answer = client.get(f"/api/look/reader/{first}/0")
    assert answer.status_code == 410  # so that the page can tell it from a wrong question, and look again
    assert "request it again" in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"text": "  "}, "text is empty"),
        ({"text": 3}, "text: Input should be a valid string"),
        ({"text": "a", "beams": 0}, "beams"),
        ({"text": "a", "disabled_heads": ["encoder.9"]}, "no head 'encoder.9'"),
        ({"text": "a", "more": 1}, "more"),
        ({"text": "a" * 200_001}, "text"),
        ({"image": "!"}, "not valid base64"),
        ([], "request"),
    ],
)
def test_what_cannot_be_looked_at_is_refused_in_words(client, body, said):
    answer = client.post("/api/look/writer", json=body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]


@pytest.mark.parametrize(
    "raw", [b"{", b'{"text": NaN}', b"\xff\xfe", b"[" * 2000, b'{"text": "a", "max_new_tokens": 1e400}', b""]
)
def test_bytes_that_are_no_request_are_no_bug(client, raw):
    answer = client.post("/api/look/writer", content=raw, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400


def test_only_this_machine_may_ask(client):
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 400
    assert client.get("/", headers={"Host": "127.0.0.1.evil.example"}).status_code == 400
    assert client.post("/api/look/reader", json={}, headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.get("/", headers={"Host": "localhost:8111"}).status_code == 200
    assert (
        client.post("/api/look/reader", content=b"", headers={"Content-Length": str(MAX_REQUEST_BYTES + 1)}).status_code
        == 413
    )
    policy = client.get("/").headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    "path", ["../session.py", "..%2fsession.py", "%2e%2e/security.py", "/etc/passwd", "__init__.py", "x" * 5000]
)
def test_only_the_files_of_the_page_are_served(client, path):
    assert client.get(f"/page/{path}").status_code == 404
    for kind in ("report", "card", "samples"):
        assert client.get(f"/api/{kind}/{path}").status_code in (400, 404)


def test_every_file_of_the_page_comes_whole_and_asks_for_nothing_elsewhere(client):
    for name, (content, kind) in read_page_files().items():
        answer = client.get(f"/page/{name}")
        assert (answer.content, answer.headers["Content-Type"]) == (content, kind)
        text = content.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text
        assert "https://" not in text
        assert "innerHTML" not in text


def test_runs_are_told_even_while_they_are_written(client):
    (run,) = client.get("/api/runs").json()
    assert run["name"] == "first"
    assert run["curves"] == {"loss": [[1, 3.5], [2, 2.5]]}
    assert client.get("/api/report/first").text == "<p>hello"
    assert client.get("/api/report/second").status_code == 400
    assert client.get("/api/samples/first").json() == {"headers": [], "rows": []}
    answer = client.get("/api/card/first")
    assert (answer.status_code, answer.json()["error"]) == (400, "The run 'first' has no model/README.md.")
    assert run["model"] is None
    assert len(collect_curves([{"step": i, "loss": 1.0} for i in range(10_000)])["loss"]) <= 400


def test_the_last_step_of_a_long_curve_is_kept_and_so_are_its_extremes():
    rows = [{"step": i, "loss": 1.0} for i in range(1, 861)]
    rows[499]["loss"] = 9.0
    found = collect_curves(rows)["loss"]
    assert len(found) <= 300
    assert (found[0], found[-1]) == ([1, 1.0], [860, 1.0])
    assert [500, 9.0] in found


def test_scores_on_held_out_data_are_curves_and_the_last_ones_are_told():
    rows = [
        {"step": 1, "loss": 2.0},
        {"step": 1, "dev": {"accuracy": 0.5, "shown": "a text", "good": True, "loss": float("nan")}},
        {"step": 2, "dev": {"accuracy": 0.75, "mcc": 0.1}},
        {"step": 2, "loss": float("inf")},
        {"step": 2, "dev": {"accuracy": 0.7, "mcc": 0.2}},  # written again by a run that went on
    ]
    assert collect_curves(rows) == {"loss": [[1, 2.0]], "dev accuracy": [[1, 0.5], [2, 0.7]], "dev mcc": [[2, 0.2]]}
    assert find_last_loss(rows) == {"step": 2, "value": None}
    assert find_last_loss([]) is None
    assert [(one["name"], one["value"], one["step"]) for one in find_last_scores(rows)] == [
        ("accuracy", 0.7, 2),
        ("mcc", 0.2, 2),
    ]
    assert find_last_scores(rows[:1]) == []


def test_a_run_says_its_model_or_the_family_it_took_by_itself(client, tmp_path):
    config = tmp_path / "first/config.toml"
    for given, said in (("", "gpt2"), ("runs/base", "runs/base")):
        config.write_text(f'[run]\ntask = "language"\nmodel = "{given}"\nfamily = "gpt2"\n', encoding="utf-8")
        (run,) = client.get("/api/runs").json()
        assert (run["task"], run["model"]) == ("language", said)


def test_the_answers_of_a_run_are_those_of_its_report(client, tmp_path):
    """Whatever was answered comes back as it was, and not as what it might mean on a page."""
    words = [word for word in hostile() if word.isprintable() and word.strip() == word and 0 < len(word) < 200]
    rows = [{"text": word, "answer": f"{i}"} for i, word in enumerate(words[:40])]
    write_report(tmp_path / "first" / "report.html", title="x", facts=[], metrics=[], scores=[], examples=rows)
    told = client.get("/api/samples/first").json()
    assert told == {"headers": ["text", "answer"], "rows": [[row["text"], row["answer"]] for row in rows]}


def test_the_card_of_a_run_is_the_one_that_was_written(client, tmp_path):
    (tmp_path / "first" / "model").mkdir()
    (tmp_path / "first" / "model" / "README.md").write_text("<b>beside the weights</b>", encoding="utf-8")
    assert "&lt;b&gt;beside the weights" in client.get("/api/card/first").text
    (tmp_path / "first" / "card.html").write_text("<h1>a card</h1>", encoding="utf-8")
    answer = client.get("/api/card/first")
    assert answer.text == "<h1>a card</h1>"
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_a_bug_tells_nothing_to_the_one_who_asks(client, known, monkeypatch):
    monkeypatch.setattr(type(known["reader"]), "look", lambda *_: 1 / 0)
    answer = client.post("/api/look/reader", json={"text": "a"})
    assert answer.status_code == 500
    assert "division" not in answer.text
    assert "Traceback" not in answer.text


def test_a_model_may_be_named_anything(client):
    assert client.get("/api/about").json()["models"][MARKUP]["run"] == MARKUP


def slow(words, code=0):
    """A command that says something, waits until a file is there, and ends."""
    waits = "out = pathlib.Path(sys.argv[3])\nwhile not out.exists(): time.sleep(0.02)"
    return (sys.executable, "-c", f"import sys, time, pathlib\nprint({words!r}, flush=True)\n{waits}\nsys.exit({code})")


def until(client, wanted):
    """Ask how far the demo is, until it is as wanted."""
    limit = time.monotonic() + PATIENCE
    while not wanted(told := client.get("/api/demo").json()):
        assert time.monotonic() < limit, told
        time.sleep(0.02)
    return told


@pytest.mark.parametrize("code", [0, 3])
def test_a_lesson_has_its_models_trained_one_at_a_time(known, tmp_path, monkeypatch, code):
    out = tmp_path / "ready"
    monkeypatch.setattr("saccade.serving.app.DEMO_DIR", out)
    monkeypatch.setattr("saccade.serving.demo_jobs.DEMO_COMMAND", slow("step 7", code))
    client = TestClient(
        make_app(known, RunFolder(tmp_path)), base_url="http://127.0.0.1", raise_server_exceptions=False
    )
    assert client.get("/api/demo").json() == {"demo": "", "running": False, "failed": False, "last_line": ""}
    assert "no demo 'tour'" in client.post("/api/demo/tour", json={}).json()["error"]
    assert client.post("/api/demo/lengths", json={}).json()["running"]
    assert until(client, lambda told: told["last_line"] == "step 7")["demo"] == "lengths"
    assert "is being trained" in client.post("/api/demo/dates", json={}).json()["error"]
    assert client.post("/api/demo/dates", json={}, headers={"Origin": "http://elsewhere.example"}).status_code == 403
    out.touch()
    assert until(client, lambda told: not told["running"])["failed"] == bool(code)


def test_what_is_trained_ends_with_the_server(tmp_path, monkeypatch):
    monkeypatch.setattr("saccade.serving.demo_jobs.DEMO_COMMAND", slow("step 1"))
    made = []
    monkeypatch.setattr(
        "saccade.serving.app.DemoJobs", lambda out: made.append(DemoJobs(tmp_path / "never")) or made[0]
    )
    with TestClient(make_app({}, RunFolder(tmp_path)), base_url="http://127.0.0.1") as client:
        assert client.post("/api/demo/dates", json={}).json()["running"]
    assert not made[0].is_running


def test_the_page_knows_the_demos_that_the_command_knows():
    assert set(DEMO_NAMES) == set(DEFAULT_MINUTES)


def test_a_demo_that_says_strange_bytes_is_listened_to(tmp_path, monkeypatch):
    said = "import os, sys; os.write(1, b'\\xff\\xfe\\nstep 2\\n')"
    monkeypatch.setattr("saccade.serving.demo_jobs.DEMO_COMMAND", (sys.executable, "-c", said))
    demos = DemoJobs(tmp_path)
    demos.start("dates")
    assert demos.process is not None
    assert demos.process.wait(PATIENCE) == 0
    limit = time.monotonic() + PATIENCE
    while demos.last_line != "step 2" and time.monotonic() < limit:
        time.sleep(0.02)
    assert demos.status() == {"demo": "dates", "running": False, "failed": False, "last_line": "step 2"}


def test_two_demos_do_not_take_each_others_models_away(tmp_path, capsys):
    with lock_run(tmp_path):
        assert demo("dates", out=tmp_path, minutes=0.01) == 5
    assert f"{tmp_path} is in use: process {os.getpid()} has been training here since 20" in capsys.readouterr().err


def test_broken_files_of_a_run_hide_nothing_but_themselves(tmp_path):
    for name in ("good", "broken"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n', encoding="utf-8")
    (tmp_path / "broken" / "config.toml").write_text("[run", encoding="utf-8")
    (tmp_path / "good" / "card.html").write_text("<p>a card</p>", encoding="utf-8")
    told = {run["name"]: run for run in RunFolder(tmp_path).list_runs()}
    assert set(told) == {"good", "broken"}
    assert told["good"]["has_card"]
    assert not told["broken"]["has_card"]
    assert parse_samples('<table class="cards"><td>no row</td><tr><th>a</th></tr></table>') == {
        "headers": ["a"],
        "rows": [],
    }


def test_lessons_are_told_and_drawn(client):
    for lesson in client.get("/api/lessons").json():
        assert client.get(f"/api/lesson/{lesson['name']}").json()["figures"], lesson["name"]
    answer = client.get("/api/lesson/nothing")
    assert answer.status_code == 400
    assert "no lesson 'nothing'" in answer.json()["error"]


def test_the_command_serves_until_it_is_stopped(tmp_path):
    """Without a model there are the lessons and the runs; Ctrl-C ends it, and a port that is taken is named."""
    command = [sys.executable, "-m", "saccade", "serve", "--runs", str(tmp_path), "--port"]
    with subprocess.Popen([*command, "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            address = re.search(r"http://127\.0\.0\.1:(\d+)/", child.stdout.readline())
            assert address
            with urlopen(address[0] + "api/lessons", timeout=PATIENCE) as answer:
                assert json.load(answer)
            second = subprocess.run([*command, address[1]], capture_output=True, text=True, timeout=PATIENCE)
            assert second.returncode == 2
            assert f"--port: {address[1]} is not available" in second.stderr
            child.send_signal(signal.SIGINT)
            assert child.wait(PATIENCE) == 130
        finally:
            child.kill()


def test_a_server_in_the_background_does_not_hear_ctrl_c(tmp_path):
    """A shell starts it with SIGINT ignored, and so it stays; SIGTERM ends it."""
    command = [sys.executable, "-m", "saccade", "serve", "--runs", str(tmp_path), "--port", "0"]
    ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=ignore) as child:
        try:
            assert child.stdout is not None
            address = re.search(r"http://[\d.:]+/", child.stdout.readline())
            assert address
            for _ in range(2):
                with urlopen(address[0] + "api/lessons", timeout=PATIENCE) as answer:
                    assert json.load(answer)
                child.send_signal(signal.SIGINT)
            with urlopen(address[0] + "api/lessons", timeout=PATIENCE) as answer:
                assert json.load(answer)
            child.send_signal(signal.SIGTERM)
            assert child.wait(PATIENCE) == -signal.SIGTERM
        finally:
            child.kill()


def test_looking_without_a_text_opens_the_page(monkeypatch):
    import saccade.cli.commands.serve as command

    asked = []
    monkeypatch.setattr(
        command, "serve_models", lambda names, port, runs, *, open_browser: asked.append((names, open_browser)) or 0
    )
    assert cli.main(["look", "runs/any"]) == 0
    assert asked == [(("runs/any",), True)]
