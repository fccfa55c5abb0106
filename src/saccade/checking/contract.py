"""The contract of an entry of a registry: its requirements, each tested on the entry alone, and the report.

`mechanism_contract.py` has those of a mechanism, `model_contracts.py` those of a position scheme, a family and a task.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saccade.checking.check import CheckReport, Finding
from saccade.checking.invariants import Outcome

TOLERANCE = 1e-9  # of a comparison in float64, relative to the largest value


@dataclass(frozen=True)
class Requirement:
    """One requirement of a contract: its test, why it matters, and the common causes of a failure."""

    name: str
    test: Callable[[Any], Outcome]
    meaning: str
    cause: str


def check_contract(title: str, subject: Any, requirements: Sequence[Requirement]) -> CheckReport:
    """Test all requirements; an exception is a failure of the requirement, and the next one is tested."""
    findings = []
    for requirement in requirements:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            outcome = _run(requirement, subject)
        findings.append(
            Finding(requirement.name, **vars(outcome), meaning=requirement.meaning, cause=requirement.cause)
        )
    return CheckReport(title, "", findings)


def _run(requirement: Requirement, subject: Any) -> Outcome:
    try:
        return requirement.test(subject)
    except Exception as error:  # an entry may raise any exception, which is then the result
        message = (str(error).splitlines() or [""])[0]
        return Outcome("fails", f"the call raised {type(error).__name__}: {message}")


def compare(got: Tensor, expected: Tensor, what: str, *, tolerance: float = TOLERANCE) -> Outcome:
    """The outcome of a comparison of two tensors; `what` says what should be equal."""
    if got.shape != expected.shape:
        return Outcome("fails", f"{what}: the shape is {tuple(got.shape)}, and {tuple(expected.shape)} is needed")
    deviation = (got - expected).abs().max().nan_to_num(nan=torch.inf).item() if got.numel() else 0.0
    limit = tolerance * max(1.0, expected.abs().max().item()) if got.numel() else 0.0
    return Outcome("holds" if deviation <= limit else "fails", what, deviation)


def join(outcomes: Sequence[Outcome], passes: str) -> Outcome:
    """The first failure, or else the largest deviation."""
    for outcome in outcomes:
        if outcome.status == "fails":
            return outcome
    return Outcome("holds", passes, max((outcome.deviation or 0.0 for outcome in outcomes), default=0.0))
