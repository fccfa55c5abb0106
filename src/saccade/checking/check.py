"""Does an attention module keep its word? `check` tests the invariants on anybody's module, ours or not, and reports.

What is tested stands in `invariants.py`; how a foreign module is called is found out in `signatures.py`.
"""

import inspect
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import nn

from saccade.checking.invariants import INVARIANTS, Claims, Outcome, Status, check_repeatability
from saccade.checking.signatures import Call, CallStyle, CheckSubject, make_subject
from saccade.errors import UsageError
from saccade.notebook import html_table

Padding = Literal["both", "right", "left", "none"]
PADDING_SIDES: dict[str, list[str]] = {"both": ["right", "left"], "right": ["right"], "left": ["left"], "none": []}


@dataclass(frozen=True)
class Finding:
    """One line of a report."""

    name: str
    status: Status
    message: str
    deviation: float | None
    location: tuple[int, int] | None
    meaning: str
    cause: str


@dataclass(frozen=True)
class CheckReport:
    """What `check` found; `print` it, ask `ok`, or hand `to_json()` to a machine."""

    module: str
    call_style: str
    findings: list[Finding]

    @property
    def ok(self) -> bool:
        """Nothing fails; what is info or not applicable is no failure."""
        return not self.failures

    @property
    def failures(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.status == "fails"]

    def __getitem__(self, name: str) -> Finding:
        return {finding.name: finding for finding in self.findings}[name]

    def __str__(self) -> str:
        rows = [("invariant", "result", "deviation", "row, position", "finding")]
        for f in self.findings:
            size = "" if f.deviation is None else f"{f.deviation:.1e}" if f.deviation else "0"
            rows.append(
                (f.name, f.status, size, "" if f.location is None else f"{f.location[0]}, {f.location[1]}", f.message)
            )
        wide = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = ["  ".join([*(row[i].ljust(wide[i]) for i in range(4)), row[4]]) for row in rows]
        why = [f"{f.name}: {f.meaning} Common cause: {f.cause}" for f in self.failures]
        verdict = f"{len(why)} of {len(self.findings)} fail." if why else "Nothing fails."
        return "\n".join([f"{self.module}, called as {self.call_style}", "", *lines, "", verdict, *why])

    def _repr_html_(self) -> str:
        rows = [(f.name, f.status, f.message) for f in self.findings]
        return html_table(
            ["invariant", "result", "finding"], rows, caption=f"{self.module}, called as {self.call_style}"
        )

    def to_dict(self) -> dict[str, Any]:
        findings = [asdict(finding) for finding in self.findings]
        for finding in findings:  # JSON knows no infinity; `message` tells that something is not finite
            if finding["deviation"] is not None and not math.isfinite(finding["deviation"]):
                finding["deviation"] = None
        return {"module": self.module, "call_style": self.call_style, "ok": self.ok, "findings": findings}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)


def check(
    module: nn.Module | Callable[..., Any],
    *,
    call: Call | None = None,
    vocab: int | None = None,
    width: int | None = None,
    causal: bool | None = None,
    padding: Padding = "both",
    length: int = 11,
) -> CheckReport:
    """Test what must be true of any attention module, on yours; here one whose causal triangle is one place too wide.

    >>> class Mean(nn.Module):
    ...     def forward(self, x):
    ...         seen = torch.ones(x.size(1), x.size(1)).tril(1)
    ...         return seen / seen.sum(-1, keepdim=True) @ x
    >>> report = check(Mean())
    >>> print(report["causality"].message)
    token 1 changes the output at position 0; 10 of 55 pairs look ahead
    >>> print(report)  # doctest: +NORMALIZE_WHITESPACE, +ELLIPSIS
    Mean, called as f(x)
    <BLANKLINE>
    invariant           result          deviation  row, position  finding
    repeatability       holds           0                         the same input gives the same output
    batch independence  holds           ...
    causality           fails           ...
    padding             not applicable                            no mask argument ...
    fully masked rows   not applicable                            no mask argument ...
    permutation         info            ...                       position-aware: ...
    gradients           not applicable                            it has no parameter that learns
    <BLANKLINE>
    1 of 7 fail.
    causality: An output that sees later tokens is trained on its own answer, and is lost when it has to write. ...

    It may take vectors f(x), tokens f(tokens), or f(q, k, v) with or without heads, and an argument that hides padding (the
    names are in `signatures.MASK_ARGUMENTS`); what it takes is found by trying. Where that fails, say `vocab` or `width`
    (with heads, of all together), or hand in `call(module, x, keep)`: x is (B, L) or (B, L, W), keep is (B, L) with True =
    real, or None. `causal`: True and False are claims to be tested, None measures. `padding` names the sides on which you
    pad. The module is in eval mode meanwhile; its modes, parameters, gradients and buffers, and torch's random state, are left as
    they were.
    """
    if padding not in PADDING_SIDES:
        raise UsageError(f"padding is one of {', '.join(PADDING_SIDES)}; got {padding!r}.")
    if vocab is not None and (width is not None or vocab < 4):
        raise UsageError(f"Give vocab (4 or more) or width, not both; got vocab={vocab}, width={width}.")
    if length < 7:
        raise UsageError(f"A length of 7 or more leaves room for padding; got {length}.")
    with preserve_module(module), torch.no_grad():
        subject = make_subject(module, call=call, vocab=vocab, width=width, length=length)
        way = subject.call
        masked = way.mask is not None if isinstance(way, CallStyle) else padding != "none"
        asked = Claims(causal, PADDING_SIDES[padding], masked)
        findings = list(_run_invariants(subject, asked))
    name = module.__name__ if inspect.isroutine(module) else type(module).__name__
    return CheckReport(name, str(way) if isinstance(way, CallStyle) else "call given by the caller", findings)


def _run_invariants(subject: CheckSubject, claims: Claims) -> Iterator[Finding]:
    repeats = True
    for invariant in INVARIANTS:
        if invariant.compares_calls and not repeats:
            outcome = Outcome("not applicable", "cannot be measured in a module that does not repeat itself")
        else:
            try:
                outcome = invariant.test(subject, claims)
            except Exception as error:  # a foreign module may raise anything; that it does is the finding
                said = (str(error).splitlines() or [""])[0]
                outcome = Outcome("fails", f"the call raised {type(error).__name__}: {said}")
        repeats = repeats and not (invariant.test is check_repeatability and outcome.status == "fails")
        yield Finding(invariant.name, **vars(outcome), meaning=invariant.meaning, cause=invariant.cause)


@contextmanager
def preserve_module(module: Any) -> Iterator[None]:
    """Eval mode inside; afterwards modes, buffers and torch's random state are what they were."""
    parts = list(module.modules()) if isinstance(module, nn.Module) else []
    modes = [part.training for part in parts]
    buffers = [(part, name, b, b.clone()) for part in parts for name, b in part._buffers.items() if b is not None]
    tensors = [*module.parameters(), *module.buffers()] if isinstance(module, nn.Module) else []
    with torch.random.fork_rng(devices={tensor.device for tensor in tensors if tensor.is_cuda}):
        try:
            if isinstance(module, nn.Module):
                module.eval()
            yield
        finally:
            for part, mode in zip(parts, modes, strict=True):
                part.training = mode
            with torch.no_grad():
                for part, name, buffer, was in buffers:
                    part._buffers[name] = buffer.copy_(was)
