"""Detection of the call signature of any attention module: its inputs, its mask argument, and the meaning of that mask.

Names with one meaning everywhere (`key_padding_mask`, `attention_mask`) are assumed to have it, so an inverted mask is reported
as a leak. The meaning of a plain `mask` differs between code bases, so it is measured: of the meanings that run without an error,
the one with which masked tokens change the other outputs least.
"""

import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.attention.sight import make_positions
from saccade.errors import UsageError

Call = Callable[[Any, Tensor, Tensor | None], Any]
"""call(module, x, keep) -> (B, L, ...): x is token ids (B, L) or vectors (B, L, W); keep is (B, L), True = real, or None."""

BATCH_SIZE, HEADS, WIDTH = 3, 2, 12  # all axes differ in size, so a mask on the wrong axis raises an error

MASK_MEANINGS: dict[str, Callable[[Tensor, torch.dtype], Tensor]] = {
    "True = attend": lambda keep, _: keep,
    "1 = attend": lambda keep, _: keep.long(),
    "-inf = ignore": lambda keep, dtype: torch.zeros_like(keep, dtype=dtype).masked_fill(~keep, -math.inf),
    "True = ignore": lambda keep, _: ~keep,
}
MASK_SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "(B, K)": lambda mask: mask,
    "(B, Q, K)": lambda mask: mask[:, None].expand(-1, mask.size(1), -1),
    "(B, 1, Q, K)": lambda mask: mask[:, None, None].expand(-1, 1, mask.size(1), -1),
}
ALL_MEANINGS = [(meaning, shape) for shape in MASK_SHAPES for meaning in MASK_MEANINGS]
MASK_ARGUMENTS = {  # known mask arguments with their possible meanings; the first in a signature is used
    "keep": [("True = attend", "(B, K)")],
    "key_padding_mask": [("True = ignore", "(B, K)")],
    "src_key_padding_mask": [("True = ignore", "(B, K)")],
    "attention_mask": [("1 = attend", "(B, K)"), ("-inf = ignore", "(B, 1, Q, K)")],
    "padding_mask": ALL_MEANINGS,
    "pad_mask": ALL_MEANINGS,
    "attn_mask": ALL_MEANINGS,
    "mask": ALL_MEANINGS,
}
CALL_FORMS: dict[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "f(tokens)": lambda x: (x,),
    "f(x)": lambda x: (x,),
    # q, k and v differ, and each is computed position by position, so the invariants for x hold for them
    "f(q, k, v)": lambda x: (x, x.roll(1, -1), x.flip(-1)),
    "f(q, k, v) with heads": lambda x: tuple(_split_heads(y) for y in (x, x.roll(1, -1), x.flip(-1))),
}


@dataclass(frozen=True)
class MaskArgument:
    """A mask argument with one of its possible meanings and shapes."""

    name: str
    meaning: str
    shape: str

    def __call__(self, keep: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
        return {self.name: MASK_SHAPES[self.shape](MASK_MEANINGS[self.meaning](keep, dtype))}

    def __str__(self) -> str:
        return f"{self.name} {self.shape} with {self.meaning}"


@dataclass(frozen=True)
class CallStyle:
    """A `Call` that was detected by trial."""

    form: str
    dtype: torch.dtype
    mask: MaskArgument | None = None
    requires_mask: bool = False  # the mask has no default, so it is always passed
    takes_position_ids: bool = False  # pass `position_ids` that count only real tokens
    batch_first: bool = True

    def __call__(self, module: Any, x: Tensor, keep: Tensor | None) -> Any:
        kwargs = {}
        if keep is None and self.requires_mask:
            keep = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        if keep is not None and self.mask is not None:
            kwargs = self.mask(keep, self.dtype)
            if self.takes_position_ids:
                kwargs["position_ids"] = make_positions(keep).clamp(min=0)
        if self.batch_first:
            out = extract_tensor(module(*CALL_FORMS[self.form](x), **kwargs))
        else:
            out = extract_tensor(module(*CALL_FORMS[self.form](x.transpose(0, 1)), **kwargs)).transpose(0, 1)
        return out.transpose(1, 2).flatten(2) if self.form.endswith("heads") else out

    def __str__(self) -> str:
        mask = f", {self.mask}" if self.mask else ""
        return f"{self.form}{mask}{', position_ids' if self.takes_position_ids else ''}"


@dataclass(frozen=True)
class CheckSubject:
    """A module, how to call it, and its input: token ids below `vocab`, or vectors of `width`."""

    module: Any
    call: Call
    dtype: torch.dtype
    device: torch.device
    length: int
    vocab: int | None = None
    width: int | None = None
    pad_id: int = 0

    def make_input(self, seed: int = 0) -> Tensor:
        """A random batch, token ids (B, L) or vectors (B, L, W), that depends only on `seed`."""
        generator = torch.Generator().manual_seed(seed)
        if self.vocab is not None:  # the first few ids are often special
            x = torch.randint(min(5, self.vocab // 2), self.vocab, (BATCH_SIZE, self.length), generator=generator)
            return x.to(self.device)
        if self.width is None:
            raise UsageError("A subject needs `vocab` or `width`; got neither.")
        return torch.randn(BATCH_SIZE, self.length, self.width, generator=generator).to(self.device, self.dtype)

    def change_tokens(self, x: Tensor, mask: Tensor, *, scale: float = 1.0) -> Tensor:
        """The batch with different tokens or vectors at all positions where `mask` (B, L) is True."""
        if self.vocab is None:
            return torch.where(mask[..., None], self.make_input(seed=1)[:, : x.size(1)] * scale, x)
        low = min(5, self.vocab // 2)
        step = 1 + self.make_input(seed=1)[:, : x.size(1)] % (self.vocab - low - 1)
        return torch.where(mask, low + (x - low + step) % (self.vocab - low), x)

    def add_padding(self, x: Tensor, left: int, right: int) -> Tensor:
        """The batch with padding on both sides: the pad token, or zeros."""
        return F.pad(x, (left, right), value=self.pad_id) if x.dim() == 2 else F.pad(x, (0, 0, left, right))

    def run(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        """The output, (B, L, ...) with at least three axes."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of the module are not about the check
            out = extract_tensor(self.call(self.module, x, keep))
        if (
            keep is not None and out.dim() > 1 and out.size(1) < x.size(1)
        ):  # nn.TransformerEncoder removes padding that all rows share
            out = F.pad(out, (0, 0) * (out.dim() - 2) + (0, x.size(1) - out.size(1)))
        if out.shape[:2] != x.shape[:2] or not out.is_floating_point():
            raise UsageError(
                f"returned {out.dtype} {tuple(out.shape)} for input {tuple(x.shape)}; expected floats (B, L, ...)"
            )
        return out[..., None] if out.dim() == 2 else out


def extract_tensor(out: Any) -> Tensor:
    """The tensor in the output of a module: the output itself, `.logits`, `.last_hidden_state`, or the first of a tuple."""
    for name in ("logits", "last_hidden_state"):
        if isinstance(getattr(out, name, None), Tensor):
            return getattr(out, name)
    out = out[0] if isinstance(out, (tuple, list)) and out else out
    if not isinstance(out, Tensor):
        raise UsageError(
            f"returned {type(out).__name__}; expected a tensor, a tuple that starts with one, or `.logits`"
        )
    return out


def make_subject(module: Any, *, call: Call | None, vocab: int | None, width: int | None, length: int) -> CheckSubject:
    """The module with its call: the given one, or else the first form that runs, with the measured meaning of its mask."""
    dtype, device = _find_dtype_and_device(module)
    required, mask_names, takes_position_ids = _inspect_signature(module)
    masks = [MaskArgument(name, *meaning) for name in mask_names for meaning in MASK_ARGUMENTS[name]]
    requires_mask = any(name in MASK_ARGUMENTS for name in required or [])
    attempts: list[str] = []
    for form, input_vocab, input_width in _generate_candidates(module, vocab, width, None if call else required):
        plain = CallStyle(form, dtype, batch_first=_is_batch_first(module))
        styles = [replace(plain, mask=mask, requires_mask=True) for mask in masks] if requires_mask else [plain]
        for style in [call] if call else styles:
            subject = CheckSubject(module, style, dtype, device, length, input_vocab, input_width, _find_pad_id(module))
            x = subject.make_input()
            try:
                subject.run(x)
            except Exception as error:  # the module may raise any exception
                attempts.append(f"  {'call' if call else style} on {tuple(x.shape)}: {_format_error(error)}")
                continue
            return _choose_mask(subject, style, masks, takes_position_ids) if isinstance(style, CallStyle) else subject
    raise UsageError(_format_failure(module, required, attempts))


def _choose_mask(
    subject: CheckSubject, style: CallStyle, masks: list[MaskArgument], takes_position_ids: bool
) -> CheckSubject:
    """The subject with the mask argument that the module takes, if any, in the meaning that leaks least."""
    best, smallest_leak, argument = subject, math.inf, None
    for mask in masks:
        if argument not in (None, mask.name):
            break  # the first argument that runs is used, even if it leaks
        candidate = replace(subject, call=replace(style, mask=mask, takes_position_ids=takes_position_ids))
        try:
            leak = _measure_leak(candidate)
        except Exception:  # the module does not take a mask of this shape or dtype
            continue
        if argument is None or leak < smallest_leak:
            best, smallest_leak, argument = candidate, leak, mask.name
        if leak == 0:
            break
    return best


def _measure_leak(subject: CheckSubject) -> float:
    """How much masked tokens, on either side, change the other outputs."""
    x = subject.make_input()
    positions = torch.arange(subject.length, device=x.device)
    keep = torch.stack([positions >= 0, positions < subject.length - 3, positions >= 2])
    before, after = subject.run(x, keep)[keep], subject.run(subject.change_tokens(x, ~keep), keep)[keep]
    return (after - before).abs().nan_to_num(nan=math.inf).max().item()


def _inspect_signature(module: Any) -> tuple[list[str] | None, list[str], bool]:
    """The required arguments (None: unknown), the mask arguments, and whether the module takes `position_ids`."""
    try:
        parameters = inspect.signature(module.forward if isinstance(module, nn.Module) else module).parameters
    except (TypeError, ValueError):  # builtins without a signature, such as functions of torch
        return None, list(MASK_ARGUMENTS), False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [name for name, p in parameters.items() if p.kind in positional and p.default is p.empty]
    has_varargs = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values())
    masks = [name for name in MASK_ARGUMENTS if name in parameters]
    return (None if has_varargs and not required else required), masks[:1], "position_ids" in parameters


def _generate_candidates(
    module: Any, vocab: int | None, width: int | None, required: list[str] | None
) -> Iterator[tuple[str, int | None, int | None]]:
    """Candidate inputs of the module, the most likely first: a form, and a vocabulary size or a width."""
    inputs = None if required is None else sum(name not in MASK_ARGUMENTS for name in required)
    modules = list(module.modules()) if isinstance(module, nn.Module) else []
    shapes = [p.shape for p in module.parameters()] if isinstance(module, nn.Module) else []
    vocabs = [m.num_embeddings for m in modules if isinstance(m, nn.Embedding) and m.num_embeddings > 3]
    widths = [n for shape in shapes for n in reversed(shape) if n > 1] or [WIDTH]
    vocabs = [vocab] if vocab else [] if width else list(dict.fromkeys(vocabs))[:4]
    widths = [width] if width else [] if vocab else list(dict.fromkeys(widths))[:6]
    if inputs in (None, 0, 1):
        yield from (("f(tokens)", n, None) for n in vocabs)
        yield from (("f(x)", None, n) for n in widths)
    if inputs in (None, 3):
        yield from (("f(q, k, v)", None, n) for n in widths)
        yield from (("f(q, k, v) with heads", None, n if width else HEADS * n) for n in widths)


def _find_dtype_and_device(module: Any) -> tuple[torch.dtype, torch.device]:
    """The dtype and the device of the first float parameter or buffer of the module."""
    if isinstance(module, nn.Module):
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                return tensor.dtype, tensor.device
    return torch.get_default_dtype(), torch.get_default_device()


def _is_batch_first(module: Any) -> bool:
    """False for layers of torch that take (L, B, W); other modules are assumed to take (B, L, W)."""
    if not type(module).__module__.startswith("torch.nn"):
        return True
    return all(getattr(m, "batch_first", True) for m in module.modules())


def _find_pad_id(module: Any) -> int:
    """The padding index of the first embedding that has one."""
    modules = module.modules() if isinstance(module, nn.Module) else ()
    pad_ids = [m.padding_idx for m in modules if isinstance(m, nn.Embedding) and m.padding_idx is not None]
    return pad_ids[0] if pad_ids else 0


def _split_heads(x: Tensor) -> Tensor:
    """(B, L, W) to (B, H, L, D)."""
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def _format_error(error: Exception) -> str:
    """An error in one line."""
    message = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {message[:120]}"


def _format_failure(module: Any, required: list[str] | None, attempts: list[str]) -> str:
    """The error message if no trial call succeeded."""
    name = module.__name__ if inspect.isroutine(module) else type(module).__name__
    names = required or []
    tried = "\n".join(attempts) or f"  nothing, because it needs {len(names)} arguments: {', '.join(names)}"
    return (
        f"The signature of {name} could not be detected. Tried:\n{tried}\n"
        "Give its input with vocab=... (token ids) or width=... (vectors), or a function that calls it:\n"
        "  check(module, width=64, call=lambda module, x, keep: module(x, mask=keep))\n"
        "where x is (B, L) token ids or (B, L, width) vectors, keep is (B, L) with True = real token, or None for all real,\n"
        'and the output is (B, L, ...). If it takes no padding mask, ignore keep and add padding="none".'
    )
