"""Every error that a user can cause has an exit code and an HTTP status, and is what a script would catch; the rest are bugs."""

import ast
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

import saccade
from saccade import cli, errors
from saccade.models.build import new
from saccade.models.families.bert import Config
from saccade.serving.security import add_security

SOURCE = Path(errors.__file__).parent
KINDS = {
    "UsageError": (2, 400, ValueError),
    "DataError": (3, 422, ValueError),
    "ModelError": (4, 422, ValueError),
    "ResourceError": (5, 503, RuntimeError),
    "DivergedError": (6, 500, RuntimeError),
}
BUILT_IN = ("ValueError", "KeyError", "TypeError", "RuntimeError", "Exception")


@pytest.mark.parametrize("name", KINDS)
def test_each_class_has_its_exit_code_its_status_and_its_built_in(name):
    code, status, built_in = KINDS[name]
    kind = getattr(saccade, name)
    assert (kind.exit_code, kind.http_status) == (code, status)
    assert issubclass(kind, built_in)
    assert issubclass(kind, saccade.SaccadeError)
    assert f"{code} " in cli.HELP_TEMPLATE.split("exit codes:")[1].split("\n")[0]


@pytest.mark.parametrize("name", KINDS)
def test_a_server_answers_with_the_status_and_the_message(name):
    app = add_security(FastAPI())

    @app.get("/")
    def _() -> None:
        raise getattr(errors, name)("what came and what to do")

    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as page:
        answer = page.get("/")
    assert answer.status_code == KINDS[name][1]
    assert "what came and what to do" in answer.json()["error"]


def test_a_bare_error_is_a_bug_of_the_server():
    app = add_security(FastAPI())

    @app.get("/")
    def _() -> None:
        raise ValueError("private")

    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as page:
        answer = page.get("/")
    assert answer.status_code == 500
    assert "private" not in answer.text


def test_settings_that_no_model_can_be_built_with_are_a_usage_error():
    with pytest.raises(saccade.UsageError, match="bert cannot be built with these settings: "):
        new("bert", Config(vocab=11, width=10, layers=1, heads=3, ffn_width=8))


def raised(tree: ast.AST) -> list[str]:
    """The classes of the errors that a file raises by name."""
    calls = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)]
    return [call.func.id for call in calls if isinstance(call.func, ast.Name)]


@pytest.mark.parametrize("package", ["text", "models", "decoding", "cli", "serving"])
def test_where_users_come_in_no_bare_error_is_raised(package):
    found = {
        str(path.relative_to(SOURCE)): name
        for path in (SOURCE / package).rglob("*.py")
        for name in raised(ast.parse(path.read_text(encoding="utf-8")))
        if name in BUILT_IN
    }
    assert found == {}
