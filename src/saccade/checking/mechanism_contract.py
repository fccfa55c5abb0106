"""The contract of a mechanism: `weights` equals the formula of its oracle, `attend` equals `weights @ v`, and every feature that
its entry declares works, while one that it does not declare is refused.

Everything is computed in float64 on two short random texts, with all parameters moved off their initial values, since a
parameter that starts neutral could otherwise be forgotten in the formula.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.attention import CAUSAL, FULL, Alibi, Mechanism, MechanismEntry, Pattern, Sight, Window, watch
from saccade.checking.check import CheckReport
from saccade.checking.contract import TOLERANCE, Requirement, check_contract, compare, join
from saccade.checking.invariants import Outcome
from saccade.plugins import is_from_plugin

BATCH_SIZE, HEADS, LENGTH, HEAD_WIDTH, MAX_POSITIONS = 2, 3, 13, 5, 29  # all differ, so a wrong axis cannot pass
PARAMETER_NOISE = 0.3  # standard deviation of what is added to the parameters
PATTERNS: dict[str, tuple[Pattern, Callable[[int, int], bool]]] = {  # with the rule for a query i and a key j
    "full": (FULL, lambda i, j: True),
    "causal": (CAUSAL, lambda i, j: j <= i),
    "window": (Window(4, 3), lambda i, j: -4 <= j - i <= 3),
}
REAL_LENGTHS = {"right": (LENGTH, LENGTH - 5), "left": (LENGTH, LENGTH - 5)}


@dataclass(frozen=True)
class MechanismSubject:
    """A mechanism under test."""

    entry: MechanismEntry

    def build(self, heads: int = HEADS) -> Mechanism:
        """A new module in float64 and evaluation mode, whose parameters are all off their initial values."""
        module = self.entry.make(HEAD_WIDTH, heads, MAX_POSITIONS).double().eval()
        if not isinstance(module, Mechanism):
            raise TypeError(f"`make` returned a {type(module).__name__}; a subclass of Mechanism is needed")
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += PARAMETER_NOISE * torch.randn_like(parameter)
        return module

    def supports(self, *features: str) -> bool:
        return set(features) <= self.entry.supports

    def iter_cases(self) -> Iterator["SightCase"]:
        """Every combination of pattern, padding and bias that the mechanism declares to support."""
        for pattern in PATTERNS:
            features = {"full": (), "causal": ("causal",)}.get(pattern, ("pattern",))
            for side in ("none", *REAL_LENGTHS):
                if self.supports(*features, *(() if side == "none" else ("padding",))):
                    yield SightCase(pattern, side)
                    if self.supports("bias"):
                        yield SightCase(pattern, side, Alibi(HEADS).double())


@dataclass(frozen=True)
class SightCase:
    """A combination of pattern, padding side and bias."""

    pattern: str
    side: str
    bias: Alibi | None = None

    def __str__(self) -> str:
        return f"{self.pattern} pattern, padding {self.side}, {'with a' if self.bias else 'no'} bias"

    def make_sight(self) -> Sight:
        return Sight(PATTERNS[self.pattern][0], keep=make_keep(self.side), bias=self.bias)

    def make_mask(self, size: int) -> Tensor:
        """What is added to the scores, (H, Q, K): -inf where a key is hidden, else the bias."""
        mask = torch.zeros(HEADS, size, size, dtype=torch.float64)
        for i in range(size):
            for j in range(size):
                if not PATTERNS[self.pattern][1](i, j):
                    mask[:, i, j] = -math.inf
                elif self.bias is not None:
                    mask[:, i, j] = self.bias(torch.tensor([[i]]), torch.tensor([[j]])).flatten()
        return mask


def make_keep(side: str) -> Tensor | None:
    """The padding mask of the two texts, (B, L); None for no padding."""
    if side == "none":
        return None
    positions, lengths = torch.arange(LENGTH), REAL_LENGTHS[side]
    return torch.stack([positions < n if side == "right" else positions >= LENGTH - n for n in lengths])


def make_inputs(
    heads: int = HEADS, kv_heads: int = 0, queries: int = LENGTH, keys: int = LENGTH
) -> tuple[Tensor, Tensor, Tensor]:
    """Random q, k and v in float64."""
    q = torch.randn(BATCH_SIZE, heads, queries, HEAD_WIDTH, dtype=torch.float64)
    k, v = torch.randn(2, BATCH_SIZE, kv_heads or heads, keys, HEAD_WIDTH, dtype=torch.float64).unbind(0)
    return q, k, v


def check_formula(subject: MechanismSubject) -> Outcome:
    """`weights` equals the oracle of the entry, for each head of each text without its padding."""
    oracle = subject.entry.oracle
    if oracle is None and not is_from_plugin("mechanism", subject.entry.name):
        return Outcome("not applicable", "one of saccade's own, whose formula its test suite has")
    if oracle is None:
        example = "oracle=lambda module, q, k, mask, head: torch.softmax(q @ k.T / math.sqrt(q.size(-1)) + mask, -1)"
        return Outcome(
            "fails", f"{subject.entry.name} declares no oracle, so nothing says what its weights should be: {example}"
        )
    module, (q, k, _), outcomes = subject.build(), make_inputs(), []
    for case in subject.iter_cases():
        weights, keep = module.weights(q, k, case.make_sight()), make_keep(case.side)
        for row in range(BATCH_SIZE):
            real = torch.ones(LENGTH, dtype=torch.bool) if keep is None else keep[row]
            mask = case.make_mask(int(real.sum()))
            for head in range(HEADS):
                expected = oracle(module, q[row, head, real], k[row, head, real], mask[head], head)
                outcomes.append(compare(weights[row, head, real][:, real], expected, f"weights of the oracle, {case}"))
    return join(outcomes, f"equal to the oracle in {len(outcomes)} cases")


def check_fast_path(subject: MechanismSubject) -> Outcome:
    """`attend` equals `weights @ v`, and so do its gradients."""
    module, outcomes = subject.build(), []
    for case in subject.iter_cases():
        inputs, results = make_inputs(), []
        for is_fast in (True, False):
            q, k, v = (x.clone().requires_grad_() for x in inputs)
            sight = case.make_sight()
            out = module.attend(q, k, v, sight) if is_fast else module.weights(q, k, sight) @ v
            (out * torch.linspace(-1, 1, HEAD_WIDTH, dtype=out.dtype)).sin().sum().backward()
            results.append([out.detach(), *(torch.zeros_like(x) if x.grad is None else x.grad for x in (q, k, v))])
        names = ("output", "gradient of q", "gradient of k", "gradient of v")
        for name, fast, defined in zip(names, *results, strict=True):
            outcomes.append(compare(fast, defined, f"{name} of attend, {case}"))
    return join(outcomes, "attend equals weights @ v, with its gradients")


def check_learning(subject: MechanismSubject) -> Outcome:
    """Queries and keys receive gradients if and only if the entry declares it, and then every parameter does."""
    module, (q, k, v) = subject.build(), make_inputs()
    q.requires_grad_()
    out = module.attend(q, k, v, Sight(FULL))
    learns = out.requires_grad and bool(torch.autograd.grad(out.sin().sum(), q, allow_unused=True)[0].abs().sum() > 0)
    if learns != subject.supports("gradients"):
        return Outcome(
            "fails", f"queries {'receive' if learns else 'receive no'} gradients, and the entry says otherwise"
        )
    if learns:
        module.attend(q, k, v, Sight(FULL)).sin().sum().backward()
    unused = [name for name, p in module.named_parameters() if learns and (p.grad is None or not p.grad.any())]
    if unused:
        return Outcome("fails", f"no gradient reaches {', '.join(unused)}")
    return Outcome("holds", "as declared")


def check_no_visible_key(subject: MechanismSubject) -> Outcome:
    """A text that is all padding gives zeros and finite gradients."""
    if not subject.supports("padding"):
        return Outcome("not applicable", "padding is not declared")
    module = subject.build()
    q, k, v = (x.requires_grad_() for x in make_inputs())
    keep = torch.ones(BATCH_SIZE, LENGTH, dtype=torch.bool)
    keep[1] = False
    out = module.attend(q, k, v, Sight(FULL, keep=keep))
    if out[1].abs().sum() != 0:
        return Outcome("fails", "a query that sees no key does not give zeros")
    out.square().sum().backward()
    if not all(x.grad.isfinite().all() for x in (q, k, v) if x.grad is not None):
        return Outcome("fails", "a query that sees no key makes a gradient NaN or infinite")
    return Outcome("holds", "zeros, and finite gradients")


def check_causal(subject: MechanismSubject) -> Outcome:
    """A changed token never changes an earlier output, bit for bit."""
    if not subject.supports("causal"):
        return Outcome("not applicable", "causal is not declared")
    module, inputs, outcomes = subject.build(), make_inputs(), []
    before = module.attend(*inputs, Sight(CAUSAL))
    for j in (1, 7, LENGTH - 1):
        changed = [torch.cat([x[:, :, :j], 3 * torch.randn_like(x[:, :, j:])], dim=2) for x in inputs]
        q, k, v = changed
        after = module.attend(q, k, v, Sight(CAUSAL))[:, :, :j]
        outcomes.append(compare(after, before[:, :, :j], f"outputs before a changed token {j}", tolerance=0.0))
    return join(outcomes, "a changed token changes no earlier output")


def check_padding_ignored(subject: MechanismSubject) -> Outcome:
    """The output with padding on either side, whatever it contains, equals the output without."""
    if not subject.supports("padding"):
        return Outcome("not applicable", "padding is not declared")
    module, (q, k, v), outcomes = subject.build(), make_inputs(), []
    alone = module.attend(q, k, v, Sight(FULL))
    for left, right in ((4, 0), (0, 5), (2, 3)):
        keep = torch.zeros(BATCH_SIZE, LENGTH + left + right, dtype=torch.bool)
        keep[:, left : left + LENGTH] = True
        padded = [torch.nn.functional.pad(x, (0, 0, left, right), value=7.0) for x in (q, k, v)]
        out = module.attend(padded[0], padded[1], padded[2], Sight(FULL, keep=keep))[:, :, left : left + LENGTH]
        outcomes.append(compare(out, alone, f"output with {left} padding tokens before the text and {right} after it"))
    return join(outcomes, "padding on either side changes nothing")


def check_incremental(subject: MechanismSubject) -> Outcome:
    """A few queries at a time, as in decoding, give the same output as all at once."""
    if not subject.supports("incremental", "causal"):
        return Outcome("not applicable", "incremental is not declared")
    module, (q, k, v), outcomes = subject.build(), make_inputs(), []
    whole = module.attend(q, k, v, Sight(CAUSAL))
    for size in (1, 4):
        for start in range(0, LENGTH, size):
            end = min(LENGTH, start + size)
            sight = Sight(CAUSAL, q_pos=torch.arange(start, end)[None], k_pos=torch.arange(end)[None])
            out = module.attend(q[:, :, start:end], k[:, :, :end], v[:, :, :end], sight)
            outcomes.append(compare(out, whole[:, :, start:end], f"outputs {start} to {end - 1} in steps of {size}"))
    return join(outcomes, "token by token equals all at once")


def check_order(subject: MechanismSubject) -> Outcome:
    """The order of the keys matters if and only if the entry does not declare `permutation`."""
    size = MAX_POSITIONS  # long enough that a sparse mechanism hides some keys
    module, (q, k, v), order = subject.build(), make_inputs(queries=size, keys=size), torch.randperm(size)
    before, after = module.attend(q, k, v, Sight(FULL)), module.attend(q, k[:, :, order], v[:, :, order], Sight(FULL))
    is_same = torch.allclose(before, after, rtol=TOLERANCE, atol=TOLERANCE)
    found = "does not matter" if is_same else "matters"
    if is_same != subject.supports("permutation"):
        return Outcome("fails", f"the order of the keys {found}, and the entry says otherwise")
    return Outcome("holds", f"as declared: the order of the keys {found}")


def check_normalized(subject: MechanismSubject) -> Outcome:
    """The weights of a query are nonnegative and sum to one, or to zero, if and only if the entry declares it."""
    module, (q, k, _) = subject.build(), make_inputs()
    weights = module.weights(q, k, Sight(FULL))
    sums = weights.sum(-1)
    sums = sums[(weights != 0).any(-1)]  # a kernel may be zero at every key
    is_normalized = bool((weights >= 0).all()) and torch.allclose(sums, torch.ones_like(sums))
    if is_normalized != subject.supports("normalized"):
        return Outcome(
            "fails", f"the weights {'sum' if is_normalized else 'do not sum'} to one, and the entry says otherwise"
        )
    return Outcome("holds", "as declared")


def check_cross_attention(subject: MechanismSubject) -> Outcome:
    """Queries of one sequence and keys of another work, or are refused by name."""
    module, (q, k, v) = subject.build(), make_inputs(queries=7, keys=11)
    if not subject.supports("cross_attention"):
        return expect_error(module, lambda: module.attend(q, k, v, Sight(FULL, cross=True)), "cross_attention")
    out = module.attend(q, k, v, Sight(FULL, cross=True))
    return compare(out, module.weights(q, k, Sight(FULL, cross=True)) @ v, "attend between two sequences")


def check_unsupported(subject: MechanismSubject) -> Outcome:
    """What the entry does not declare is refused with a ValueError that names the mechanism."""
    module, (q, k, v) = subject.build(), make_inputs()
    sights = {
        "causal": Sight(CAUSAL),
        "pattern": Sight(Window(2, 2)),
        "bias": Sight(FULL, bias=Alibi(HEADS).double()),
    }
    missing = [name for name in sights if not subject.supports(name)]
    if not missing:
        return Outcome("not applicable", "causal, pattern and bias are all declared")
    return join(
        [expect_error(module, lambda name=name: module.attend(q, k, v, sights[name]), name) for name in missing],
        f"refused by name: {', '.join(missing)}",
    )


def expect_error(module: Mechanism, call: Callable[[], object], feature: str) -> Outcome:
    """The outcome of a call that has to raise a ValueError with the name of the class."""
    try:
        call()
    except ValueError as error:
        if type(module).__name__ in str(error):
            return Outcome("holds", f"{feature} is refused by name")
        return Outcome("fails", f"{feature} is refused, but the message does not name {type(module).__name__}: {error}")
    return Outcome("fails", f"{feature} is not declared, and not refused")


def check_key_heads(subject: MechanismSubject) -> Outcome:
    """Grouped-query attention: two key heads for four query heads equal four key heads, repeated."""
    heads, groups = 4, 2
    module, (q, k, v) = subject.build(heads), make_inputs(heads, groups)
    if module.ties_query_key:
        return Outcome("not applicable", "queries and keys are the same vectors")
    repeated = [x.repeat_interleave(heads // groups, dim=1) for x in (k, v)]
    expected = module.attend(q, repeated[0], repeated[1], Sight(FULL))
    return join(
        [
            compare(module.attend(q, k, v, Sight(FULL)), expected, "attend with fewer key heads"),
            compare(
                module.weights(q, k, Sight(FULL)),
                module.weights(q, repeated[0], Sight(FULL)),
                "weights with fewer key heads",
            ),
        ],
        "fewer key heads equal repeated ones",
    )


def check_watching(subject: MechanismSubject) -> Outcome:
    """`watch` shows the weights that were used, and leaves the output as it is."""
    module, (q, k, v) = subject.build(), make_inputs()
    alone = module(q, k, v, Sight(FULL))
    with watch(module) as looks:
        watched = module(q, k, v, Sight(FULL))
    shown = looks[0].weights
    assert shown is not None
    same = compare(watched, alone, "the output while it is watched", tolerance=0.0)
    return join([same, compare(shown @ v, watched, "the watched weights times v")], "shows what was used")


def check_half_precision(subject: MechanismSubject) -> Outcome:
    """In bfloat16 the output has the type of the input, and gradients are finite."""
    module = subject.build().bfloat16()
    q, k, v = (x.bfloat16().requires_grad_() for x in make_inputs())
    keep = make_keep("left") if subject.supports("padding") else None
    out = module(q, k, v, Sight(FULL, keep=keep))
    if out.dtype != torch.bfloat16:
        return Outcome("fails", f"bfloat16 inputs give {out.dtype}; a parameter or a constant has another type")
    out.float().sum().backward()
    is_finite = v.grad is not None and bool(v.grad.isfinite().all())
    return Outcome(
        "holds" if is_finite else "fails", "gradients are finite" if is_finite else "gradients are not finite"
    )


MECHANISM_REQUIREMENTS = [
    Requirement(
        "formula",
        check_formula,
        "`weights` is the definition of a mechanism, so something else has to say what it should be.",
        "a factor or a parameter that the oracle does not have, or an entry without an oracle.",
    ),
    Requirement(
        "fast path",
        check_fast_path,
        "`watch` shows `weights`, so the output has to be the sum of the values with exactly these.",
        "an `attend` that ignores the mask, the bias or the scale.",
    ),
    Requirement(
        "gradients", check_learning, "What is trained has to be reached.", "detach, argmax, or an unused parameter."
    ),
    Requirement(
        "no visible key",
        check_no_visible_key,
        "Rows of only padding occur in real batches.",
        "softmax over a row of -inf; `Mechanism.normalize` gives zeros there.",
    ),
    Requirement(
        "causality", check_causal, "A decoder must not see its target.", "a mean or a normalization over all keys."
    ),
    Requirement(
        "padding", check_padding_ignored, "Padding depends on the other texts of a batch.", "statistics over padding."
    ),
    Requirement(
        "incremental",
        check_incremental,
        "Decoding sees one query at a time.",
        "the index of a query taken for its position.",
    ),
    Requirement("order of keys", check_order, "Positions are another part's work.", "a wrong `supports`."),
    Requirement("normalized", check_normalized, "Reports and lessons rely on what is declared.", "a wrong `supports`."),
    Requirement(
        "cross-attention", check_cross_attention, "A decoder reads another sequence.", "queries and keys of one length."
    ),
    Requirement(
        "unsupported",
        check_unsupported,
        "What is ignored silently gives wrong results.",
        "a sight whose pattern is not read.",
    ),
    Requirement(
        "key heads",
        check_key_heads,
        "Grouped-query attention shares key heads.",
        "`scores` is given repeated key heads, but an `attend` of one's own has to repeat them (`repeat_kv_heads`).",
    ),
    Requirement(
        "watch", check_watching, "What is shown has to be what was used.", "random numbers or state in `weights`."
    ),
    Requirement(
        "half precision",
        check_half_precision,
        "Training uses bfloat16.",
        "a constant in float32, such as torch.tensor(2.0).",
    ),
]


def check_mechanism(entry: MechanismEntry) -> CheckReport:
    """Test the contract of a mechanism; the report says what fails, and by how much.

    >>> from saccade.attention import get_mechanism
    >>> check_mechanism(get_mechanism("dot"))["fast path"].status
    'holds'
    """
    subject = MechanismSubject(entry)
    return check_contract(f"the mechanism {entry.name}", subject, MECHANISM_REQUIREMENTS)
