"""What goes into a checkpoint comes out of it bit for bit, and the files are what the safetensors library makes of them."""

import json
import math
import resource

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, load_file
from safetensors.torch import save as reference
from torch import Tensor

from saccade.training.checkpoint.disk import Disk
from saccade.training.checkpoint.serialize import (
    SAFETENSORS_DTYPES,
    from_json,
    safetensors_chunks,
    safetensors_size,
    to_json,
)
from saccade.training.checkpoint.store import CheckpointStore, bytes_needed


def bits(x: Tensor) -> bytes:
    return x.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8).numpy().tobytes()


@st.composite
def odd_tensors(draw) -> Tensor:
    """Any bits of any kind in any small shape, some of them seen sideways, with gaps, or one value everywhere."""
    dtype = draw(st.sampled_from(sorted(SAFETENSORS_DTYPES, key=str)))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    size = torch.empty((), dtype=dtype).element_size() * math.prod(shape)
    content = draw(st.binary(min_size=size, max_size=size))
    if dtype == torch.bool:
        content = bytes(byte & 1 for byte in content)
    x = torch.tensor(list(content), dtype=torch.uint8).view(dtype).reshape(shape)
    look = draw(st.sampled_from(["as it is", "sideways", "with gaps", "spread"]))
    if look == "sideways":
        x = x.permute(tuple(reversed(range(x.dim()))))
    elif look == "with gaps" and x.dim():
        x = x[::2]
    elif look == "spread":
        x = x[..., None].expand(*x.shape, 3)
    return x


names = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=8)
facts = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["float:nan", "text:", "text:a"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def same(one: object, other: object) -> bool:
    """Equal, of equal kinds, with NaN equal to NaN and 0.0 unlike -0.0."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and repr(one) == repr(other)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(names, odd_tensors(), max_size=4))
def test_tensors_come_back_bit_for_bit(tensors):
    content = b"".join(safetensors_chunks(tensors))
    assert len(content) == safetensors_size(tensors)
    back = load(content)
    assert back.keys() == tensors.keys()
    for name, x in tensors.items():
        assert (back[name].dtype, back[name].shape) == (x.dtype, x.shape)
        assert bits(back[name]) == bits(x)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(names, st.lists(st.integers(0, 3), max_size=3), max_size=5),
    st.sampled_from([torch.float32, torch.int8]),
)
def test_the_bytes_are_those_of_the_library(shapes, dtype):
    tensors = {name: torch.full(shape, 3, dtype=dtype) for name, shape in shapes.items()}
    assert b"".join(safetensors_chunks(tensors)) == reference(tensors)


@settings(max_examples=100, deadline=None)
@given(facts)
def test_facts_come_back_exactly(value):
    text = to_json(value)
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert same(from_json(text), value)


def test_a_store_gives_back_what_it_was_given(tmp_path):
    """Through real files and a real disk, with a group that is empty and tensors that share memory."""
    whole = torch.randn(6, 5)
    tensors = {
        "model": {"whole": whole, "part": whole[2:4], "sideways": whole.t(), "leaf": torch.nn.Parameter(whole[0])},
        "optimizer": {},
        "random": {"cpu": torch.get_rng_state(), "scalar": torch.tensor(7), "none": torch.empty(0, 3)},
    }
    given = {"loss": float("nan"), "rate": 0.1 + 0.2, "betas": (0.9, 0.999), "names": {"a": None, "é\ud800": -0.0}}
    path = CheckpointStore(tmp_path).save(1200, tensors, given)
    assert path == tmp_path / "checkpoints" / "step-00001200"
    found = CheckpointStore(tmp_path).read_newest(warn=pytest.fail)
    assert found is not None
    assert (found.step, found.path, found.groups) == (1200, path, ("model", "optimizer", "random"))
    assert same(found.facts, given | {"betas": [0.9, 0.999]})
    for group, named in tensors.items():
        for back in (found.read_tensors(group), load_file(path / f"{group}.safetensors")):
            assert back.keys() == named.keys()
            for name, x in named.items():
                assert torch.equal(back[name], x)
    with pytest.raises(ValueError, match=r"has no group 'modle' of tensors; it has model, optimizer, random\."):
        found.read_tensors("modle")


def test_loaded_tensors_outlive_their_files(tmp_path):
    """A run that goes on from a checkpoint writes into these tensors and removes the files."""
    store, x = CheckpointStore(tmp_path, max_to_keep=1), torch.arange(1000)
    store.save(1, {"model": {"x": x}}, {})
    path = store.read_newest(warn=pytest.fail)
    assert path is not None
    back = path.read_tensors("model")["x"]
    back += 1
    assert torch.equal(path.read_tensors("model")["x"], x)
    store.save(2, {"model": {"x": x}}, {})
    assert not path.path.exists()
    assert torch.equal(back, x + 1)


@pytest.mark.parametrize(
    ("tensors", "values", "said"),
    [
        ({"model": {"x": torch.zeros(2, dtype=torch.complex64)}}, {}, "model/x is torch.complex64, which safetensors"),
        ({"model": {"x": torch.zeros(2).to_sparse()}}, {}, "model/x is torch.sparse_coo; a dense tensor"),
        ({"model": {"x": torch.zeros(2, device="meta")}}, {}, r"model/x has no values \(device meta\)"),
        ({"model": {"__metadata__": torch.zeros(2)}}, {}, "cannot name a tensor"),
        ({"../model": {"x": torch.zeros(2)}}, {}, "'../model' is not a valid name for a group"),
        ({}, {"a": [1, {"b": torch.zeros(2)}]}, r"facts.a\[1\].b is Tensor; expected numbers"),
        ({}, {"a": {1: 2}}, "facts.a: the key 1 is int"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_anything_is_written(tmp_path, tensors, values, said):
    with pytest.raises((ValueError, TypeError), match=said):
        CheckpointStore(tmp_path).save(1, tensors, values)
    assert not list(tmp_path.iterdir())


def test_numbers_that_make_no_sense_are_refused(tmp_path):
    with pytest.raises(ValueError, match="max_to_keep is 0; at least 1"):
        CheckpointStore(tmp_path, max_to_keep=0)
    with pytest.raises(ValueError, match="step is -1"):
        CheckpointStore(tmp_path).save(-1, {}, {})


def test_saving_takes_no_memory_of_its_own(tmp_path):
    """64 MB are written; a second copy of them would show."""
    tensors = {"model": {f"x{i}": torch.zeros(2**20) for i in range(16)}}
    assert bytes_needed(tensors) > 2**26
    store = CheckpointStore(tmp_path, disk=Disk())
    store.save(0, {"model": {"x": torch.zeros(2)}}, {})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    store.save(1, tensors, {})
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**13  # kilobytes
