"""Promise S2: pickled weights are read in a process of their own, tensors only; malicious ones are refused and run nothing."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hostile.pickles import CALLS, FILES, MARK, PROTO, STOP, archive
from saccade.models.io import convert_pickle

pytestmark = pytest.mark.xdist_group("pickles")  # what all of them ask is made once

TESTS = str(Path(__file__).parents[1])


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, Any]]]:
    """What came of every malicious file, and the directory in which they were read."""
    home = tmp_path_factory.mktemp("pickles")
    command = [sys.executable, "-m", "hostile.unpickle", str(home)]
    settings = {"PYTHONPATH": TESTS, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | settings, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return home, {line["name"]: line for line in lines}


def test_there_are_more_than_fifty_and_none_ran(outcomes: tuple[Path, dict[str, dict[str, Any]]]):
    home, found = outcomes
    assert found.keys() == FILES.keys()
    assert len(set(FILES.values())) == len(FILES) >= 50
    assert sorted(path.name for path in home.iterdir()) == ["evil.py", "pytorch_model.bin"]
    assert not (home / MARK).exists()


@pytest.mark.parametrize("name", FILES)
def test_a_malicious_pickle_is_refused(outcomes: tuple[Path, dict[str, dict[str, Any]]], name: str):
    found = outcomes[1][name]
    assert found["kind"] == "refused"
    assert found["events"] == []
    assert found["seconds"] < 10
    assert 5 < len(found["said"]) < 500
    assert "weights_only" not in found["said"]  # torch's advice to read it without a guard
    title = name.partition(": ")[2]
    if title in CALLS and CALLS[title].startswith(b"c") and "." in title:  # a call: its name is in the error
        assert title.rpartition(".")[2] in found["said"]


def test_the_whole_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A good pickle comes out as it was, also from a directory that has a module of its own called torch."""
    home = tmp_path / "old"
    home.mkdir()
    weights = {"a": torch.arange(6.0).view(2, 3).T, "b": torch.tensor([3, 5])}
    torch.save({"state_dict": weights}, home / "pytorch_model.bin")
    torch.save({"step": 3}, home / "optimizer.pt")
    (home / "torch.py").write_text(f"open({str(tmp_path / MARK)!r}, 'w')", encoding="utf-8")
    (home / "config.json").write_text("{}", encoding="utf-8")
    monkeypatch.chdir(home)
    with convert_pickle.convert_pickles(home) as clean:
        assert sorted(path.name for path in clean.iterdir()) == ["config.json", "model.safetensors"]
        read = load_file(clean / "model.safetensors")
    assert not clean.exists()
    assert read.keys() == weights.keys()
    assert all(torch.equal(read[name], x) for name, x in weights.items())
    assert not (tmp_path / MARK).exists()


def test_the_error_names_the_file_and_the_reason(tmp_path: Path):
    (tmp_path / "pytorch_model.bin").write_bytes(archive(PROTO + CALLS["subprocess.Popen"] + STOP))
    said = r"pytorch_model\.bin: the pickle was rejected: .*subprocess\.Popen"
    with pytest.raises(ValueError, match=said), convert_pickle.convert_pickles(tmp_path):
        pass
    (tmp_path / "pytorch_model.bin").write_bytes(FILES["archive: a bomb"])
    said = r"pytorch_model\.bin: the pickle was rejected: its members have 52,"
    with pytest.raises(ValueError, match=said), convert_pickle.convert_pickles(tmp_path):
        pass
    (tmp_path / "pytorch_model.bin").unlink()
    with pytest.raises(ValueError, match="no pickled weights"), convert_pickle.convert_pickles(tmp_path):
        pass


def test_the_child_has_little_to_do_harm_with():
    """Memory, time and file size are bounded, and where the system allows it there is no network."""
    program = """
import json, resource, socket
from saccade.models.io import convert_pickle
convert_pickle._limit_resources(1 << 20)
limits = [resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU)]
names = [name for _, name in socket.if_nameindex()]
try:
    bytearray(8 << 30)
    grew = True
except MemoryError:
    grew = False
print(json.dumps([limits, names, grew]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    limits, names, grew = json.loads(done.stdout)
    assert limits == [convert_pickle.TORCH_MEMORY_BYTES + (4 << 20), 3 << 20, convert_pickle.MAX_CONVERT_SECONDS]
    assert not grew
    if os.geteuid() == 0 and set(names) != {name for _, name in socket.if_nameindex()}:
        assert names == ["lo"]
