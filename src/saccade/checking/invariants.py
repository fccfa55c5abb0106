"""What is true of every correct attention module, whatever its weights: one small test for each line of `INVARIANTS`.

A test calls the module two or more times and compares, so it needs no reference output, no training and no data.
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
PADDING_NOISE_SCALE = 30.0  # how far from usual the content of padding is drawn


@dataclass(frozen=True)
class Outcome:
    """What one test found: the largest deviation, and at which (row, position)."""

    status: Status
    message: str
    deviation: float | None = None
    location: tuple[int, int] | None = None


@dataclass(frozen=True)
class Claims:
    """What the caller of `check` claims about the module."""

    causal: bool | None
    padding_sides: list[str]
    takes_mask: bool


InvariantTest = Callable[[CheckSubject, Claims], Outcome]


@dataclass(frozen=True)
class Invariant:
    """A statement about every correct module: how it is tested, why it matters, and what commonly breaks it."""

    name: str
    test: InvariantTest
    meaning: str
    cause: str
    compares_calls: bool = (
        True  # sets two calls side by side, which says nothing of a module that does not repeat itself
    )


def check_repeatability(subject: CheckSubject, claims: Claims) -> Outcome:
    """The same input gives the same output, also after another input."""
    x, other = subject.make_input(), subject.make_input(seed=3)
    before = subject.run(x)
    again = subject.run(x)
    subject.run(other)
    apart = torch.maximum(measure_difference(again, before), measure_difference(subject.run(x), before))
    return make_outcome(apart, 0, "the same input gives the same output", "the same input gives another output")


def check_batch_independence(subject: CheckSubject, claims: Claims) -> Outcome:
    """A row alone equals the row among others, and no row moves another."""
    x = subject.make_input()
    together = subject.run(x)
    alone = torch.cat([subject.run(x[i : i + 1]) for i in range(BATCH_SIZE)])
    changed = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
    changed[1] = True
    moved = measure_difference(subject.run(subject.change_tokens(x, changed)), together).masked_fill(changed, 0)
    if moved.any():
        return make_outcome(moved, 0, "", "changing row 1 changes another row")
    said = "a row alone equals the row among others", "a row alone differs from the row among others"
    return make_outcome(measure_difference(alone, together), rounding_tolerance(together), *said)


def check_causality(subject: CheckSubject, claims: Claims) -> Outcome:
    """Changing a token never changes an output before it."""
    x, size = subject.make_input(), subject.length
    before, none = subject.run(x), torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
    moved = []
    for j in range(size):
        changed = none.clone()
        changed[:, j] = True
        moved.append(measure_difference(subject.run(subject.change_tokens(x, changed)), before))
    moves = torch.stack(moved, dim=-1)  # (B, L, J) how much token J moves the output at L
    ahead = moves * torch.ones(size, size, device=x.device).triu(1)
    leaks, seen = int((ahead.amax(0) > 0).sum()), int((moves.amax(0).tril(-1) > 0).sum())
    apart, when = ahead.max(-1)
    pairs = f"{leaks} of {size * (size - 1) // 2} pairs look ahead"
    if not leaks:
        if claims.causal is False:
            return Outcome("fails", "causal, though you say that it looks ahead", 0.0)
        return Outcome("holds", "causal: no token changes an output before it", 0.0)
    worst = make_outcome(apart, 0, "", "")
    row, at = worst.location or (0, 0)
    said = f"token {int(when[row, at])} changes the output at position {at}; {pairs}"
    # a module that looks both ways sees about as much ahead as behind; far less is a causal one with a hole
    if claims.causal or (claims.causal is None and 2 * leaks < seen):
        return Outcome("fails", said, worst.deviation, worst.location)
    return Outcome("info", f"not causal: {pairs}", worst.deviation, worst.location)


def check_padding(subject: CheckSubject, claims: Claims) -> Outcome:
    """What fills the padding never matters, and padding on either side equals none."""
    if not (claims.takes_mask and claims.padding_sides):
        return Outcome("not applicable", _explain_no_mask(claims))
    at, size, short = torch.arange(subject.length, device=subject.device), subject.length, subject.length * 2 // 3
    x, worst = subject.make_input(), Outcome("holds", "", 0.0)
    for side in claims.padding_sides:
        keep = torch.stack([at < n for n in (size, short, short - 1)])
        keep = keep if side == "right" else keep.flip(1)
        moved = measure_difference(
            subject.run(subject.change_tokens(x, ~keep, scale=PADDING_NOISE_SCALE), keep), subject.run(x, keep)
        )
        found = make_outcome(
            moved.masked_fill(~keep, 0), 0, "", f"what fills the padding on the {side} moves real outputs"
        )
        if found.status == "fails":
            return found
    wanted = subject.run(x[:, :short])
    for side in claims.padding_sides:
        left, right = (0, size - short) if side == "right" else (size - short, 0)
        keep = ((at >= left) & (at < size - right)).expand(BATCH_SIZE, -1)
        out = subject.run(subject.add_padding(x[:, :short], left, right), keep)[:, left : left + short]
        found = make_outcome(
            measure_difference(out, wanted), rounding_tolerance(wanted), "", _explain_padding_shift(side)
        )
        worst = max(worst, found, key=lambda outcome: outcome.deviation or 0)
    said = "padding and what fills it change nothing"
    return worst if worst.status == "fails" else Outcome("holds", said, worst.deviation, worst.location)


def check_fully_masked_rows(subject: CheckSubject, claims: Claims) -> Outcome:
    """A query that may see nothing gives finite outputs and finite gradients."""
    if not claims.takes_mask:
        return Outcome("not applicable", _explain_no_mask(claims))
    at = torch.arange(subject.length, device=subject.device)
    blind = torch.stack([at >= 0, at < 0, at >= 0])
    left = torch.stack([at >= n for n in (0, 2, 5)])  # in a causal module, the first places of rows 1 and 2 see nothing
    known = compute_gradients(subject, None)[1]  # what is broken without any mask is found elsewhere
    for keep in (blind, left) if "left" in claims.padding_sides else (blind,):
        try:
            fast = subject.run(subject.make_input(), keep)  # without gradients a module may take another road
            out, bad, _ = compute_gradients(subject, keep)
        except (ValueError, TypeError, NotImplementedError) as error:
            return Outcome("not applicable", f"refused: {str(error).splitlines()[0]}")
        if not (out.isfinite().all() and fast.isfinite().all()):
            only = " under torch.no_grad()" if out.isfinite().all() else ""
            row, place = (int(n) for n in (~fast.isfinite() | ~out.isfinite()).nonzero()[0, :2])
            return Outcome("fails", f"a query that may see nothing gives NaN or infinity{only}", math.inf, (row, place))
        if set(bad) - set(known):
            return Outcome(
                "fails", f"a query that may see nothing breaks the gradient of {_format_names(bad)}", math.inf
            )
    return Outcome("holds", "a query that may see nothing gives finite outputs and gradients")


def check_permutation(subject: CheckSubject, claims: Claims) -> Outcome:
    """Whether the module takes its input as a set: another order gives the same outputs in that order."""
    x = subject.make_input()
    order = torch.randperm(subject.length, generator=torch.Generator().manual_seed(0)).to(x.device)
    before = subject.run(x)[:, order]
    found = make_outcome(
        measure_difference(subject.run(x[:, order]), before),
        rounding_tolerance(before),
        "equivariant: the input is a set",
        "",
    )
    said = found.message or "position-aware: the order matters, as with positions or a causal mask"
    return Outcome("info", said, found.deviation, found.location)


def check_gradients(subject: CheckSubject, claims: Claims) -> Outcome:
    """Every parameter that takes part gets a finite gradient."""
    if not any(p.requires_grad for p in _named_parameters(subject.module).values()):
        return Outcome("not applicable", "it has no parameter that learns")
    out, bad, unused = compute_gradients(subject, None)
    if not out.requires_grad:
        return Outcome("fails", "no gradient reaches any parameter")
    if bad:
        return Outcome("fails", f"the gradient is NaN or infinite in {_format_names(bad)}", math.inf)
    return Outcome(
        "holds", f"finite; {len(unused)} get none: {_format_names(unused)}" if unused else "finite, in every parameter"
    )


INVARIANTS = [
    Invariant(
        "repeatability",
        check_repeatability,
        "A module in eval mode is a function: what it was given before must not matter.",
        "F.dropout without training=self.training, or a cache kept in the module.",
        compares_calls=False,
    ),
    Invariant(
        "batch independence",
        check_batch_independence,
        "Rows of a batch are strangers: an answer must not depend on who else is asked.",
        "softmax or a mean over the batch axis, a view that mixes axes, or (L, B, W) taken for (B, L, W).",
    ),
    Invariant(
        "causality",
        check_causality,
        "An output that sees later tokens is trained on its own answer, and is lost when it has to write.",
        "a triangle off by one (tril(1), triu(0)), a mask added after softmax, or a mean over the whole length.",
    ),
    Invariant(
        "padding",
        check_padding,
        "Padding is not text: real outputs must be the same with any, and with none.",
        "the mask not handed to every layer, True and False swapped, -5 for -inf, or positions that count padding.",
    ),
    Invariant(
        "fully masked rows",
        check_fully_masked_rows,
        "A row that is all padding comes up in life, and one NaN there spoils every weight at the next step.",
        "softmax over a row of -inf; give zero weights there, as scaled_dot_product_attention does.",
    ),
    Invariant(
        "permutation",
        check_permutation,
        "Attention without positions takes its input as a set; with them, order matters. Either can be meant.",
        "positions left out, or added twice.",
    ),
    Invariant(
        "gradients",
        check_gradients,
        "A parameter that takes part must be able to learn.",
        "torch.no_grad or detach in forward, the root or logarithm of 0, or NaN hidden by torch.where.",
        compares_calls=False,
    ),
]


def measure_difference(one: Tensor, other: Tensor) -> Tensor:
    """(B, L) the largest difference at each place; infinite where either is not finite."""
    return (one - other).abs().flatten(2).amax(-1).nan_to_num(nan=math.inf)


def rounding_tolerance(out: Tensor) -> float:
    """How far apart two ways to compute `out` may be by rounding alone."""
    return TOLERANCES.get(out.dtype, 1e-5) * max(1.0, out.abs().max().item())


def make_outcome(differences: Tensor, tolerance: float, pass_message: str, fail_message: str) -> Outcome:
    """The outcome of gaps (B, L) that may be at most `tolerance`."""
    worst = differences.max().item()
    if worst == 0:
        return Outcome("holds", pass_message, 0.0)
    row, at = divmod(int(differences.argmax()), differences.size(1))
    held = worst <= tolerance
    return Outcome("holds" if held else "fails", pass_message if held else fail_message, worst, (row, at))


def compute_gradients(subject: CheckSubject, keep: Tensor | None) -> tuple[Tensor, list[str], list[str]]:
    """The output with its graph, the names whose gradient is not finite, and the names that get none."""
    x = subject.make_input()
    leaves: dict[str, Tensor] = {name: p for name, p in _named_parameters(subject.module).items() if p.requires_grad}
    with torch.enable_grad():
        if x.is_floating_point():
            leaves["the input"] = x.requires_grad_()
        out = subject.run(x, keep)
        if not (leaves and out.requires_grad):
            return out, [], list(leaves)
        slopes = torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device).view_as(out)
        grads = torch.autograd.grad((out * slopes).sum(), list(leaves.values()), allow_unused=True)
    got = dict(zip(leaves, grads, strict=True))
    return (
        out,
        [n for n, g in got.items() if g is not None and not g.isfinite().all()],
        [n for n in got if got[n] is None],
    )


def _named_parameters(module: Any) -> dict[str, nn.Parameter]:
    return dict(module.named_parameters()) if isinstance(module, nn.Module) else {}


def _explain_no_mask(claims: Claims) -> str:
    if not claims.padding_sides:
        return 'you say that it takes no padding (padding="none")'
    return "no mask argument of a known name; hand in `call` if it has one"


def _explain_padding_shift(side: str) -> str:
    if side == "right":
        return "padding on the right changes real outputs"
    return 'padding on the left changes real outputs; if you only ever pad right, say padding="right"'


def _format_names(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
