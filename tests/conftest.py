"""Shared by all tests: one thread, so that small tensors do not wait for each other, and a fixed seed."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _quiet_and_repeatable():
    torch.set_num_threads(1)
    torch.manual_seed(0)
