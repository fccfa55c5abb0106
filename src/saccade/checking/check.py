"""`saccade.check`: test the invariants of attention (causality, padding, batch independence, ...) on any module, and report.

`invariants.py` has the tests; `signatures.py` detects how to call the module.
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
from saccade.keywords import check_keywords
from saccade.notebook import html_table

Padding = Literal["both", "right", "left", "none"]
PADDING_SIDES: dict[str, list[str]] = {"both": ["right", "left"], "right": ["right"], "left": ["left"], "none": []}


@dataclass(frozen=True)
class Finding:
    """The result of one invariant."""

    name: str
    status: Status
    message: str
    deviation: float | None
    location: tuple[int, int] | None
    meaning: str
    cause: str


@dataclass(frozen=True)
class CheckReport:
    """The result of `check`: print it, test `ok`, or export it with `to_json()`."""

    module: str
    call_style: str
    findings: list[Finding]

    @property
    def title(self) -> str:
        return f"{self.module}, called as {self.call_style}" if self.call_style else self.module

    @property
    def ok(self) -> bool:
        """Whether no invariant fails; `info` and `not applicable` are no failures."""
        return not self.failures

    @property
    def failures(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.status == "fails"]

    def __getitem__(self, name: str) -> Finding:
        return {finding.name: finding for finding in self.findings}[name]

    def __str__(self) -> str:
        rows = [("invariant", "result", "deviation", "row, position", "finding")]
        for f in self.findings:
            deviation = "" if f.deviation is None else f"{f.deviation:.1e}" if f.deviation else "0"
            location = "" if f.location is None else f"{f.location[0]}, {f.location[1]}"
            rows.append((f.name, f.status, deviation, location, f.message))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = ["  ".join([*(row[i].ljust(widths[i]) for i in range(4)), row[4]]) for row in rows]
        causes = [f"{f.name}: {f.meaning} Common cause: {f.cause}" for f in self.failures]
        verdict = f"{len(causes)} of {len(self.findings)} invariants fail." if causes else "No invariant fails."
        return "\n".join([self.title, "", *lines, "", verdict, *causes])

    def _repr_html_(self) -> str:
        rows = [(f.name, f.status, f.message) for f in self.findings]
        return html_table(["invariant", "result", "finding"], rows, caption=self.title)

    def to_dict(self) -> dict[str, Any]:
        findings = [asdict(finding) for finding in self.findings]
        for finding in findings:  # JSON has no infinity; `message` says that a value is not finite
            if finding["deviation"] is not None and not math.isfinite(finding["deviation"]):
                finding["deviation"] = None
        return {"module": self.module, "call_style": self.call_style, "ok": self.ok, "findings": findings}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)


@check_keywords
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
    """Test the invariants of attention on any module; in this example the causal mask is off by one.

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
    gradients           not applicable                            the module has no trainable parameters
    <BLANKLINE>
    1 of 7 invariants fail.
    causality: An output that depends on later tokens sees its target in training, and the model fails at generation. ...

    The module may take vectors f(x), token ids f(tokens), or f(q, k, v) with or without heads, and a padding mask (the names
    are in `signatures.MASK_ARGUMENTS`); its signature is detected by trial calls. If that fails, give `vocab` or `width` (of
    all heads together), or `call(module, x, keep)`, where x is (B, L) or (B, L, W), and keep is (B, L) with True for real
    tokens, or None. `causal` True or False is tested as a claim; None detects it. `padding` names the sides on which you pad.
    The module is in eval mode during the check; afterwards its modes, parameters, gradients and buffers, and the random state
    of torch, are restored.
    """
    if padding not in PADDING_SIDES:
        raise UsageError(f"padding must be one of {', '.join(PADDING_SIDES)}; got {padding!r}.")
    if vocab is not None and (width is not None or vocab < 4):
        raise UsageError(f"Give vocab (4 or more) or width, not both; got vocab={vocab}, width={width}.")
    if length < 7:
        raise UsageError(f"length must be 7 or more, to leave room for padding; got {length}.")
    with preserve_module(module), torch.no_grad():
        subject = make_subject(module, call=call, vocab=vocab, width=width, length=length)
        style = subject.call
        takes_mask = style.mask is not None if isinstance(style, CallStyle) else padding != "none"
        claims = Claims(causal, PADDING_SIDES[padding], takes_mask)
        findings = list(_run_invariants(subject, claims))
    name = module.__name__ if inspect.isroutine(module) else type(module).__name__
    return CheckReport(name, str(style) if isinstance(style, CallStyle) else "the given `call`", findings)


def _run_invariants(subject: CheckSubject, claims: Claims) -> Iterator[Finding]:
    is_repeatable = True
    for invariant in INVARIANTS:
        if invariant.compares_calls and not is_repeatable:
            outcome = Outcome("not applicable", "cannot be tested, because the outputs are not repeatable")
        else:
            try:
                outcome = invariant.test(subject, claims)
            except Exception as error:  # the module may raise any exception, which is then the result
                message = (str(error).splitlines() or [""])[0]
                outcome = Outcome("fails", f"the call raised {type(error).__name__}: {message}")
        is_repeatable = is_repeatable and not (invariant.test is check_repeatability and outcome.status == "fails")
        yield Finding(invariant.name, **vars(outcome), meaning=invariant.meaning, cause=invariant.cause)


@contextmanager
def preserve_module(module: Any) -> Iterator[None]:
    """Run in eval mode; afterwards restore modes, buffers and the random state of torch."""
    modules = list(module.modules()) if isinstance(module, nn.Module) else []
    modes = [m.training for m in modules]
    buffers = [(m, name, b, b.clone()) for m in modules for name, b in m._buffers.items() if b is not None]
    tensors = [*module.parameters(), *module.buffers()] if isinstance(module, nn.Module) else []
    with torch.random.fork_rng(devices={tensor.device for tensor in tensors if tensor.is_cuda}):
        try:
            if isinstance(module, nn.Module):
                module.eval()
            yield
        finally:
            for m, mode in zip(modules, modes, strict=True):
                m.training = mode
            with torch.no_grad():
                for m, name, buffer, saved in buffers:
                    m._buffers[name] = buffer.copy_(saved)
