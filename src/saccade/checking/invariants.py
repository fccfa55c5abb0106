"""What is true of every correct attention module, whatever its weights: one small test for each line of `INVARIANTS`.

A test calls the module two or more times and compares, so it needs no reference output, no training and no data.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from saccade.checking.calling import ROWS, Subject

Status = Literal["holds", "fails", "noted", "not applicable"]
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
GARBAGE = 30.0  # how far from usual the content of padding is drawn


@dataclass(frozen=True)
class Outcome:
    """What one test found: the largest deviation, and at which (row, position)."""

    status: Status
    said: str
    deviation: float | None = None
    where: tuple[int, int] | None = None


@dataclass(frozen=True)
class Asked:
    """What the caller of `check` claims about the module."""

    causal: bool | None
    sides: list[str]
    masked: bool


Test = Callable[[Subject, Asked], Outcome]


@dataclass(frozen=True)
class Invariant:
    """A statement about every correct module: how it is tested, why it matters, and what commonly breaks it."""

    name: str
    test: Test
    meaning: str
    cause: str
    compares: bool = True  # sets two calls side by side, which says nothing of a module that does not repeat itself


def repeat(subject: Subject, asked: Asked) -> Outcome:
    """The same input gives the same output, also after another input."""
    x, other = subject.draw(), subject.draw(seed=3)
    before = subject.run(x)
    again = subject.run(x)
    subject.run(other)
    apart = torch.maximum(gap(again, before), gap(subject.run(x), before))
    return judge(apart, 0, "the same input gives the same output", "the same input gives another output")


def batch(subject: Subject, asked: Asked) -> Outcome:
    """A row alone equals the row among others, and no row moves another."""
    x = subject.draw()
    together = subject.run(x)
    alone = torch.cat([subject.run(x[i : i + 1]) for i in range(ROWS)])
    changed = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
    changed[1] = True
    moved = gap(subject.run(subject.change(x, changed)), together).masked_fill(changed, 0)
    if moved.any():
        return judge(moved, 0, "", "changing row 1 changes another row")
    said = "a row alone equals the row among others", "a row alone differs from the row among others"
    return judge(gap(alone, together), limit(together), *said)


def future(subject: Subject, asked: Asked) -> Outcome:
    """Changing a token never changes an output before it."""
    x, size = subject.draw(), subject.length
    before, none = subject.run(x), torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
    moved = []
    for j in range(size):
        changed = none.clone()
        changed[:, j] = True
        moved.append(gap(subject.run(subject.change(x, changed)), before))
    moves = torch.stack(moved, dim=-1)  # (B, L, J) how much token J moves the output at L
    ahead = moves * torch.ones(size, size, device=x.device).triu(1)
    leaks, seen = int((ahead.amax(0) > 0).sum()), int((moves.amax(0).tril(-1) > 0).sum())
    apart, when = ahead.max(-1)
    pairs = f"{leaks} of {size * (size - 1) // 2} pairs look ahead"
    if not leaks:
        if asked.causal is False:
            return Outcome("fails", "causal, though you say that it looks ahead", 0.0)
        return Outcome("holds", "causal: no token changes an output before it", 0.0)
    worst = judge(apart, 0, "", "")
    row, at = worst.where or (0, 0)
    said = f"token {int(when[row, at])} changes the output at position {at}; {pairs}"
    # a module that looks both ways sees about as much ahead as behind; far less is a causal one with a hole
    if asked.causal or (asked.causal is None and 2 * leaks < seen):
        return Outcome("fails", said, worst.deviation, worst.where)
    return Outcome("noted", f"not causal: {pairs}", worst.deviation, worst.where)


def padding(subject: Subject, asked: Asked) -> Outcome:
    """What fills the padding never matters, and padding on either side equals none."""
    if not (asked.masked and asked.sides):
        return Outcome("not applicable", _no_mask(asked))
    at, size, short = torch.arange(subject.length, device=subject.device), subject.length, subject.length * 2 // 3
    x, worst = subject.draw(), Outcome("holds", "", 0.0)
    for side in asked.sides:
        keep = torch.stack([at < n for n in (size, short, short - 1)])
        keep = keep if side == "right" else keep.flip(1)
        moved = gap(subject.run(subject.change(x, ~keep, scale=GARBAGE), keep), subject.run(x, keep))
        found = judge(moved.masked_fill(~keep, 0), 0, "", f"what fills the padding on the {side} moves real outputs")
        if found.status == "fails":
            return found
    wanted = subject.run(x[:, :short])
    for side in asked.sides:
        left, right = (0, size - short) if side == "right" else (size - short, 0)
        keep = ((at >= left) & (at < size - right)).expand(ROWS, -1)
        out = subject.run(subject.fill(x[:, :short], left, right), keep)[:, left : left + short]
        found = judge(gap(out, wanted), limit(wanted), "", _shifted(side))
        worst = max(worst, found, key=lambda outcome: outcome.deviation or 0)
    said = "padding and what fills it change nothing"
    return worst if worst.status == "fails" else Outcome("holds", said, worst.deviation, worst.where)


def hidden(subject: Subject, asked: Asked) -> Outcome:
    """A query that may see nothing gives finite outputs and finite gradients."""
    if not asked.masked:
        return Outcome("not applicable", _no_mask(asked))
    at = torch.arange(subject.length, device=subject.device)
    blind = torch.stack([at >= 0, at < 0, at >= 0])
    left = torch.stack([at >= n for n in (0, 2, 5)])  # in a causal module, the first places of rows 1 and 2 see nothing
    known = gradient(subject, None)[1]  # what is broken without any mask is found elsewhere
    for keep in (blind, left) if "left" in asked.sides else (blind,):
        try:
            fast = subject.run(subject.draw(), keep)  # without gradients a module may take another road
            out, bad, _ = gradient(subject, keep)
        except (ValueError, TypeError, NotImplementedError) as error:
            return Outcome("not applicable", f"refused: {str(error).splitlines()[0]}")
        if not (out.isfinite().all() and fast.isfinite().all()):
            only = " under torch.no_grad()" if out.isfinite().all() else ""
            row, place = (int(n) for n in (~fast.isfinite() | ~out.isfinite()).nonzero()[0, :2])
            return Outcome("fails", f"a query that may see nothing gives NaN or infinity{only}", math.inf, (row, place))
        if set(bad) - set(known):
            return Outcome("fails", f"a query that may see nothing breaks the gradient of {_some(bad)}", math.inf)
    return Outcome("holds", "a query that may see nothing gives finite outputs and gradients")


def permutation(subject: Subject, asked: Asked) -> Outcome:
    """Whether the module takes its input as a set: another order gives the same outputs in that order."""
    x = subject.draw()
    order = torch.randperm(subject.length, generator=torch.Generator().manual_seed(0)).to(x.device)
    before = subject.run(x)[:, order]
    found = judge(gap(subject.run(x[:, order]), before), limit(before), "equivariant: the input is a set", "")
    said = found.said or "position-aware: the order matters, as with positions or a causal mask"
    return Outcome("noted", said, found.deviation, found.where)


def gradients(subject: Subject, asked: Asked) -> Outcome:
    """Every parameter that takes part gets a finite gradient."""
    if not any(p.requires_grad for p in _parameters(subject.module).values()):
        return Outcome("not applicable", "it has no parameter that learns")
    out, bad, unused = gradient(subject, None)
    if not out.requires_grad:
        return Outcome("fails", "no gradient reaches any parameter")
    if bad:
        return Outcome("fails", f"the gradient is NaN or infinite in {_some(bad)}", math.inf)
    return Outcome(
        "holds", f"finite; {len(unused)} get none: {_some(unused)}" if unused else "finite, in every parameter"
    )


INVARIANTS = [
    Invariant(
        "repeat",
        repeat,
        "A module in eval mode is a function: what it was given before must not matter.",
        "F.dropout without training=self.training, or a cache kept in the module.",
        compares=False,
    ),
    Invariant(
        "batch",
        batch,
        "Rows of a batch are strangers: an answer must not depend on who else is asked.",
        "softmax or a mean over the batch axis, a view that mixes axes, or (L, B, W) taken for (B, L, W).",
    ),
    Invariant(
        "future",
        future,
        "An output that sees later tokens is trained on its own answer, and is lost when it has to write.",
        "a triangle off by one (tril(1), triu(0)), a mask added after softmax, or a mean over the whole length.",
    ),
    Invariant(
        "padding",
        padding,
        "Padding is not text: real outputs must be the same with any, and with none.",
        "the mask not handed to every layer, True and False swapped, -5 for -inf, or positions that count padding.",
    ),
    Invariant(
        "hidden rows",
        hidden,
        "A row that is all padding comes up in life, and one NaN there spoils every weight at the next step.",
        "softmax over a row of -inf; give zero weights there, as scaled_dot_product_attention does.",
    ),
    Invariant(
        "permutation",
        permutation,
        "Attention without positions takes its input as a set; with them, order matters. Either can be meant.",
        "positions left out, or added twice.",
    ),
    Invariant(
        "gradients",
        gradients,
        "A parameter that takes part must be able to learn.",
        "torch.no_grad or detach in forward, the root or logarithm of 0, or NaN hidden by torch.where.",
        compares=False,
    ),
]


def gap(one: Tensor, other: Tensor) -> Tensor:
    """(B, L) the largest difference at each place; infinite where either is not finite."""
    return (one - other).abs().flatten(2).amax(-1).nan_to_num(nan=math.inf)


def limit(out: Tensor) -> float:
    """How far apart two ways to compute `out` may be by rounding alone."""
    return TOLERANCES.get(out.dtype, 1e-5) * max(1.0, out.abs().max().item())


def judge(apart: Tensor, allowed: float, good: str, bad: str) -> Outcome:
    """The outcome of gaps (B, L) that may be at most `allowed`."""
    worst = apart.max().item()
    if worst == 0:
        return Outcome("holds", good, 0.0)
    row, at = divmod(int(apart.argmax()), apart.size(1))
    held = worst <= allowed
    return Outcome("holds" if held else "fails", good if held else bad, worst, (row, at))


def gradient(subject: Subject, keep: Tensor | None) -> tuple[Tensor, list[str], list[str]]:
    """The output with its graph, the names whose gradient is not finite, and the names that get none."""
    x = subject.draw()
    leaves: dict[str, Tensor] = {name: p for name, p in _parameters(subject.module).items() if p.requires_grad}
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


def _parameters(module: Any) -> dict[str, nn.Parameter]:
    return dict(module.named_parameters()) if isinstance(module, nn.Module) else {}


def _no_mask(asked: Asked) -> str:
    if not asked.sides:
        return 'you say that it takes no padding (padding="none")'
    return "no mask argument of a known name; hand in `call` if it has one"


def _shifted(side: str) -> str:
    if side == "right":
        return "padding on the right changes real outputs"
    return 'padding on the left changes real outputs; if you only ever pad right, say padding="right"'


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
