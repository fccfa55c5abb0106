"""Nothing in the package reads a pickle or runs text as code: checkpoints are safetensors and JSON, settings are TOML.

The one exception is the process of `saccade import --convert-pickle`, which reads tensors alone (`weights_only=True`).
"""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "saccade"
BANNED_MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
BANNED_BUILTINS = {"eval", "exec", "compile", "__import__"}
BANNED_READERS = {"FileSystemReader", "allow_pickle"}  # DCP's default reader unpickles its metadata; numpy's option
WEIGHTS_ONLY = {"models/io/convert_pickle.py"}  # may call torch.load(..., weights_only=True)


def unsafe(tree: ast.AST, *, may_convert: bool = False) -> list[tuple[int, str]]:
    """The lines that could read a pickle or run a text, and what stands there."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, a.name) for a in node.names if a.name.split(".")[0] in BANNED_MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in BANNED_MODULES:
            found.append((node.lineno, str(node.module)))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BANNED_BUILTINS:
            found.append((node.lineno, node.func.id))
        elif isinstance(node, ast.Attribute | ast.Name | ast.keyword | ast.alias):
            name = {"Attribute": "attr", "Name": "id", "keyword": "arg", "alias": "name"}[type(node).__name__]
            if getattr(node, name) in BANNED_READERS:
                found.append((node.lineno, getattr(node, name)))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("torch.load", "torch.jit.load", "torch.hub.load"):
            safe = any(k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in node.keywords)
            if not (may_convert and safe):
                found.append((node.lineno, ast.unparse(node.func)))
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_pickle_is_read_and_no_text_is_run(path):
    name = str(path.relative_to(SOURCE))
    assert unsafe(ast.parse(path.read_text(encoding="utf-8")), may_convert=name in WEIGHTS_ONLY) == []


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import pickle", "pickle"),
        ("from joblib import load", "joblib"),
        ("import torch\ntorch.load('x')", "torch.load"),
        ("import torch\ntorch.load('x', weights_only=False)", "torch.load"),
        ("eval('1')", "eval"),
        ("exec('1')", "exec"),
        ("from torch.distributed.checkpoint import FileSystemReader", "FileSystemReader"),
        ("import numpy\nnumpy.load('x', allow_pickle=True)", "allow_pickle"),
        ("import yaml\nyaml.load('x')", "yaml"),
    ],
)
def test_what_is_banned_is_found(code, what):
    assert [name for _, name in unsafe(ast.parse(code), may_convert=True)] == [what]


def test_tensors_alone_may_be_converted():
    code = ast.parse("torch.load(source, map_location='cpu', weights_only=True)")
    assert unsafe(code, may_convert=True) == []
    assert unsafe(code) == [(1, "torch.load")]
