"""An encoder on two cores while another program keeps one of them busy: it must not cost more than it costs one thread."""

import os
import subprocess
import sys
import time

import pytest
import torch

from saccade.engine.kernels import library
from saccade.engine.kernels.encoder_program import EncoderLayer, EncoderProgram, NormWeights
from saccade.engine.kernels.matrix import PackedMatrix

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not library.is_available(), reason=library.unavailable_reason() or "compiled"),
    pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity"),
]
CALLS = 400


@pytest.fixture
def hog():
    """A process that never sleeps, on the second of this process's first two cores; we keep to these two."""
    before = os.sched_getaffinity(0)
    cores = sorted(before)[:2]
    if len(cores) < 2:
        pytest.skip("one core")
    os.sched_setaffinity(0, cores)
    command = f"import os; os.sched_setaffinity(0, [{cores[1]}])\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", command])
    yield
    process.kill()
    process.wait()
    os.sched_setaffinity(0, before)


def make_program():
    def matrix(outputs, inputs):
        return PackedMatrix(torch.randn(outputs, inputs) / inputs**0.5, torch.zeros(outputs), "int8")

    norm = NormWeights(torch.ones(384), torch.zeros(384), 1e-5)
    layers = [
        EncoderLayer(
            matrix(1152, 384),
            matrix(384, 384),
            matrix(1536, 384),
            matrix(384, 1536),
            norm,
            norm,
            12,
            12,
            32,
            0.2,
            "gelu",
        )
        for _ in range(6)
    ]
    return EncoderProgram(layers, 384, "int8")


def measure_seconds(program, lengths, threads):
    torch.set_num_threads(threads)
    rows = torch.randn(sum(lengths), 384)
    for _ in range(20):
        program.encode(lengths, rows=rows)
    start = time.perf_counter()
    for _ in range(CALLS // len(lengths)):
        program.encode(lengths, rows=rows)
    return time.perf_counter() - start


@pytest.mark.parametrize("lengths", [[18], [18] * 8], ids=["one text", "a batch"])
def test_a_busy_core_costs_no_more_than_a_thread(hog, lengths):
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        program = make_program()
        program.encode([3], rows=torch.randn(3, 384))  # its sums are made for two threads
        ratios = [measure_seconds(program, lengths, 2) / measure_seconds(program, lengths, 1) for _ in range(5)]
    finally:
        torch.set_num_threads(threads)
    assert sorted(ratios)[2] < 1.25, ratios
