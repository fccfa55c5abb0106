"""The invariants of a correct attention module, whatever its weights: one test for each line of `INVARIANTS`.

A test compares the outputs of two or more calls, so it needs no reference output, no training and no data.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from saccade.checking.signatures import BATCH_SIZE, CheckSubject

Status = Literal["holds", "fails", "info", "not applicable"]
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
PADDING_NOISE_SCALE = 30.0  # scale of the vectors that replace padding


@dataclass(frozen=True)
class Outcome:
    """The result of a test: status, message, and the largest deviation with its (row, position)."""

    status: Status
    message: str
    deviation: float | None = None
    location: tuple[int, int] | None = None


@dataclass(frozen=True)
class Claims:
    """The claims of the caller of `check` about the module."""

    causal: bool | None
    padding_sides: list[str]
    takes_mask: bool


InvariantTest = Callable[[CheckSubject, Claims], Outcome]


@dataclass(frozen=True)
class Invariant:
    """An invariant: its test, why it matters, and the common causes of a failure."""

    name: str
    test: InvariantTest
    meaning: str
    cause: str
    compares_calls: bool = True  # compares several calls, which is meaningless if the outputs are not repeatable


def check_repeatability(subject: CheckSubject, claims: Claims) -> Outcome:
    """The same input gives the same output, even after other inputs."""
    x, other = subject.make_input(), subject.make_input(seed=3)
    before = subject.run(x)
    again = subject.run(x)
    subject.run(other)
    differences = torch.maximum(measure_difference(again, before), measure_difference(subject.run(x), before))
    passes, fails = "the same input gives the same output", "the same input gives different outputs"
    return make_outcome(differences, 0, passes, fails)


def check_batch_independence(subject: CheckSubject, claims: Claims) -> Outcome:
    """A row alone has the same output as in a batch, and no row changes the output of another."""
    x = subject.make_input()
    batched = subject.run(x)
    alone = torch.cat([subject.run(x[i : i + 1]) for i in range(BATCH_SIZE)])
    changed = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
    changed[1] = True
    effects = measure_difference(subject.run(subject.change_tokens(x, changed)), batched).masked_fill(changed, 0)
    if effects.any():
        return make_outcome(effects, 0, "", "changing row 1 changes the output of another row")
    passes, fails = (
        "a row alone gives the same output as in a batch",
        "a row alone gives another output than in a batch",
    )
    return make_outcome(measure_difference(alone, batched), rounding_tolerance(batched), passes, fails)


def check_causality(subject: CheckSubject, claims: Claims) -> Outcome:
    """Changing a token never changes an earlier output."""
    x, size = subject.make_input(), subject.length
    before, unchanged = subject.run(x), torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
    differences = []
    for j in range(size):
        changed = unchanged.clone()
        changed[:, j] = True
        differences.append(measure_difference(subject.run(subject.change_tokens(x, changed)), before))
    effects = torch.stack(differences, dim=-1)  # (B, L, J) the effect of token J on the output at L
    leaks = effects * torch.ones(size, size, device=x.device).triu(1)
    leak_count, past_count = int((leaks.amax(0) > 0).sum()), int((effects.amax(0).tril(-1) > 0).sum())
    largest, token = leaks.max(-1)
    pairs = f"{leak_count} of {size * (size - 1) // 2} pairs look ahead"
    if not leak_count:
        if claims.causal is False:
            return Outcome("fails", "causal, although causal=False was given", 0.0)
        return Outcome("holds", "causal: no token changes an earlier output", 0.0)
    worst = make_outcome(largest, 0, "", "")
    row, position = worst.location or (0, 0)
    message = f"token {int(token[row, position])} changes the output at position {position}; {pairs}"
    # a bidirectional module attends about as much to the future as to the past; much less is a causal module with a leak
    if claims.causal or (claims.causal is None and 2 * leak_count < past_count):
        return Outcome("fails", message, worst.deviation, worst.location)
    return Outcome("info", f"not causal: {pairs}", worst.deviation, worst.location)


def check_padding(subject: CheckSubject, claims: Claims) -> Outcome:
    """The content of padding has no effect, and the output with padding on either side equals that without."""
    if not (claims.takes_mask and claims.padding_sides):
        return Outcome("not applicable", _explain_no_mask(claims))
    positions, size, short = (
        torch.arange(subject.length, device=subject.device),
        subject.length,
        subject.length * 2 // 3,
    )
    x, worst = subject.make_input(), Outcome("holds", "", 0.0)
    for side in claims.padding_sides:
        keep = torch.stack([positions < n for n in (size, short, short - 1)])
        keep = keep if side == "right" else keep.flip(1)
        changed = subject.change_tokens(x, ~keep, scale=PADDING_NOISE_SCALE)
        effects = measure_difference(subject.run(changed, keep), subject.run(x, keep)).masked_fill(~keep, 0)
        outcome = make_outcome(effects, 0, "", f"the content of padding on the {side} changes real outputs")
        if outcome.status == "fails":
            return outcome
    expected = subject.run(x[:, :short])
    for side in claims.padding_sides:
        left, right = (0, size - short) if side == "right" else (size - short, 0)
        keep = ((positions >= left) & (positions < size - right)).expand(BATCH_SIZE, -1)
        out = subject.run(subject.add_padding(x[:, :short], left, right), keep)[:, left : left + short]
        differences, message = measure_difference(out, expected), _explain_padding_shift(side)
        outcome = make_outcome(differences, rounding_tolerance(expected), "", message)
        worst = max(worst, outcome, key=lambda outcome: outcome.deviation or 0)
    message = "neither padding nor its content changes real outputs"
    return worst if worst.status == "fails" else Outcome("holds", message, worst.deviation, worst.location)


def check_fully_masked_rows(subject: CheckSubject, claims: Claims) -> Outcome:
    """A query whose keys are all masked gives finite outputs and finite gradients."""
    if not claims.takes_mask:
        return Outcome("not applicable", _explain_no_mask(claims))
    positions = torch.arange(subject.length, device=subject.device)
    empty_row = torch.stack([positions >= 0, positions < 0, positions >= 0])
    # with left padding, the first queries of rows 1 and 2 have no keys in a causal module
    left_padded = torch.stack([positions >= n for n in (0, 2, 5)])
    known_bad = compute_gradients(subject, None)[1]  # what fails without a mask is found by `check_gradients`
    for keep in (empty_row, left_padded) if "left" in claims.padding_sides else (empty_row,):
        try:
            no_grad_out = subject.run(
                subject.make_input(), keep
            )  # without gradients a module may use another code path
            out, bad, _ = compute_gradients(subject, keep)
        except (ValueError, TypeError, NotImplementedError) as error:
            return Outcome("not applicable", f"the module raised {type(error).__name__}: {str(error).splitlines()[0]}")
        if not (out.isfinite().all() and no_grad_out.isfinite().all()):
            condition = " under torch.no_grad()" if out.isfinite().all() else ""
            row, position = (int(n) for n in (~no_grad_out.isfinite() | ~out.isfinite()).nonzero()[0, :2])
            message = f"a query whose keys are all masked gives NaN or infinity{condition}"
            return Outcome("fails", message, math.inf, (row, position))
        if set(bad) - set(known_bad):
            names = _format_names(bad)
            return Outcome(
                "fails", f"a query whose keys are all masked gives a non-finite gradient of {names}", math.inf
            )
    return Outcome("holds", "a query whose keys are all masked gives finite outputs and gradients")


def check_permutation(subject: CheckSubject, claims: Claims) -> Outcome:
    """Whether the module is permutation equivariant: permuted inputs give permuted outputs."""
    x = subject.make_input()
    order = torch.randperm(subject.length, generator=torch.Generator().manual_seed(0)).to(x.device)
    before = subject.run(x)[:, order]
    differences = measure_difference(subject.run(x[:, order]), before)
    outcome = make_outcome(differences, rounding_tolerance(before), "equivariant: the input is a set", "")
    message = outcome.message or "position-aware: the order matters, as with positions or a causal mask"
    return Outcome("info", message, outcome.deviation, outcome.location)


def check_gradients(subject: CheckSubject, claims: Claims) -> Outcome:
    """Every parameter that is used gets a finite gradient."""
    if not any(p.requires_grad for p in _named_parameters(subject.module).values()):
        return Outcome("not applicable", "the module has no trainable parameters")
    out, bad, unused = compute_gradients(subject, None)
    if not out.requires_grad:
        return Outcome("fails", "no parameter gets a gradient")
    if bad:
        return Outcome("fails", f"the gradient is NaN or infinite in {_format_names(bad)}", math.inf)
    if not unused:
        return Outcome("holds", "finite for all parameters")
    return Outcome("holds", f"finite; no gradient for {len(unused)} unused: {_format_names(unused)}")


INVARIANTS = [
    Invariant(
        "repeatability",
        check_repeatability,
        "In eval mode the output must depend on the input alone, not on earlier calls.",
        "F.dropout without training=self.training, or a cache kept in the module.",
        compares_calls=False,
    ),
    Invariant(
        "batch independence",
        check_batch_independence,
        "The output of a row must not depend on the other rows of its batch.",
        "softmax or a mean over the batch axis, a view that mixes axes, or (L, B, W) taken for (B, L, W).",
    ),
    Invariant(
        "causality",
        check_causality,
        "An output that depends on later tokens sees its target in training, and the model fails at generation.",
        "a causal mask that is off by one (tril(1), triu(0)), a mask added after softmax, or a mean over the whole length.",
    ),
    Invariant(
        "padding",
        check_padding,
        "Real outputs must be the same with any padding, and with none.",
        "a mask that is not passed to every layer, True and False swapped, -5 for -inf, or positions that count padding.",
    ),
    Invariant(
        "fully masked rows",
        check_fully_masked_rows,
        "Rows of only padding occur in real batches, and one NaN makes all weights NaN in the next optimizer step.",
        "softmax over a row of -inf; give zero weights there, as scaled_dot_product_attention does.",
    ),
    Invariant(
        "permutation",
        check_permutation,
        "Attention without positions is permutation equivariant, with positions it is not; either can be intended.",
        "missing positions, or positions that are added twice.",
    ),
    Invariant(
        "gradients",
        check_gradients,
        "Every parameter that is used must be trainable.",
        "torch.no_grad or detach in forward, the square root or logarithm of 0, or NaN masked by torch.where.",
        compares_calls=False,
    ),
]


def measure_difference(one: Tensor, other: Tensor) -> Tensor:
    """The largest difference at each position, (B, L); infinite if either is not finite."""
    return (one - other).abs().flatten(2).amax(-1).nan_to_num(nan=math.inf)


def rounding_tolerance(out: Tensor) -> float:
    """The largest difference between two ways to compute `out` that rounding explains."""
    return TOLERANCES.get(out.dtype, 1e-5) * max(1.0, out.abs().max().item())


def make_outcome(differences: Tensor, tolerance: float, pass_message: str, fail_message: str) -> Outcome:
    """The outcome of a test whose differences (B, L) may be at most `tolerance`."""
    worst = differences.max().item()
    if worst == 0:
        return Outcome("holds", pass_message, 0.0)
    location = divmod(int(differences.argmax()), differences.size(1))
    if worst <= tolerance:
        return Outcome("holds", pass_message, worst, location)
    return Outcome("fails", fail_message, worst, location)


def compute_gradients(subject: CheckSubject, keep: Tensor | None) -> tuple[Tensor, list[str], list[str]]:
    """The output, the names of parameters whose gradient is not finite, and the names of those without a gradient."""
    x = subject.make_input()
    leaves: dict[str, Tensor] = {name: p for name, p in _named_parameters(subject.module).items() if p.requires_grad}
    with torch.enable_grad():
        if x.is_floating_point():
            leaves["the input"] = x.requires_grad_()
        out = subject.run(x, keep)
        if not (leaves and out.requires_grad):
            return out, [], list(leaves)
        grad_out = torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device).view_as(out)
        grads = torch.autograd.grad((out * grad_out).sum(), list(leaves.values()), allow_unused=True)
    by_name = dict(zip(leaves, grads, strict=True))
    bad = [name for name, grad in by_name.items() if grad is not None and not grad.isfinite().all()]
    return out, bad, [name for name, grad in by_name.items() if grad is None]


def _named_parameters(module: Any) -> dict[str, nn.Parameter]:
    return dict(module.named_parameters()) if isinstance(module, nn.Module) else {}


def _explain_no_mask(claims: Claims) -> str:
    if not claims.padding_sides:
        return 'not tested with padding="none"'
    return "no mask argument with a known name; pass `call` if the module has one"


def _explain_padding_shift(side: str) -> str:
    if side == "right":
        return "padding on the right changes real outputs"
    return 'padding on the left changes real outputs; if you only pad on the right, pass padding="right"'


def _format_names(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
