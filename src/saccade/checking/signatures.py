"""How to call an attention module that is not ours: what it takes, which argument hides padding, and what that one means.

Names that mean one thing everywhere (`key_padding_mask`, `attention_mask`) are taken at their word, so that an inverted one
shows as a leak. A plain `mask` means something else in every repository, so its meaning is measured: of the readings that
run, the one under which hidden tokens move the visible ones least.
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
"""call(module, x, keep) -> (B, L, ...): x is tokens (B, L) or vectors (B, L, W); keep is (B, L), True = real, or None."""

BATCH_SIZE, HEADS, WIDTH = 3, 2, 12  # no two axes are of one length, so a mask on the wrong axis does not run

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
ALL_MEANINGS = [(sense, shape) for shape in MASK_SHAPES for sense in MASK_MEANINGS]
MASK_ARGUMENTS = {  # the arguments we know, and what each may mean; of several in one signature, the first
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
    # q, k and v differ, and each is made place by place, so what holds for x holds for them
    "f(q, k, v)": lambda x: (x, x.roll(1, -1), x.flip(-1)),
    "f(q, k, v) with heads": lambda x: tuple(_split_heads(y) for y in (x, x.roll(1, -1), x.flip(-1))),
}


@dataclass(frozen=True)
class MaskArgument:
    """One meaning of one mask argument."""

    name: str
    meaning: str
    shape: str

    def __call__(self, keep: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
        return {self.name: MASK_SHAPES[self.shape](MASK_MEANINGS[self.meaning](keep, dtype))}

    def __str__(self) -> str:
        return f"{self.name} {self.shape} where {self.meaning}"


@dataclass(frozen=True)
class CallStyle:
    """A `Call` that was found by trying."""

    form: str
    dtype: torch.dtype
    mask: MaskArgument | None = None
    requires_mask: bool = False  # the mask has no default, so it is handed in even when nothing is hidden
    takes_position_ids: bool = False  # takes `position_ids`, which then count the real tokens only
    batch_first: bool = True

    def __call__(self, module: Any, x: Tensor, keep: Tensor | None) -> Any:
        given = {}
        if keep is None and self.requires_mask:
            keep = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        if keep is not None and self.mask is not None:
            given = self.mask(keep, self.dtype)
            if self.takes_position_ids:
                given["position_ids"] = make_positions(keep).clamp(min=0)
        if self.batch_first:
            out = extract_tensor(module(*CALL_FORMS[self.form](x), **given))
        else:
            out = extract_tensor(module(*CALL_FORMS[self.form](x.transpose(0, 1)), **given)).transpose(0, 1)
        return out.transpose(1, 2).flatten(2) if self.form.endswith("heads") else out

    def __str__(self) -> str:
        return (
            self.form + (f", {self.mask}" if self.mask else "") + (", position_ids" if self.takes_position_ids else "")
        )


@dataclass(frozen=True)
class CheckSubject:
    """A module, how to call it, and what to feed it: `vocab` for tokens, `width` for vectors."""

    module: Any
    call: Call
    dtype: torch.dtype
    device: torch.device
    length: int
    vocab: int | None = None
    width: int | None = None
    pad_id: int = 0  # the token to pad with

    def make_input(self, seed: int = 0) -> Tensor:
        """A batch, (B, L) tokens or (B, L, W) vectors; the same for the same seed, whatever the global one."""
        chance = torch.Generator().manual_seed(seed)
        if self.vocab is not None:  # the first few ids are often special
            x = torch.randint(min(5, self.vocab // 2), self.vocab, (BATCH_SIZE, self.length), generator=chance)
            return x.to(self.device)
        if self.width is None:
            raise UsageError("A subject needs `vocab` or `width`; got neither.")
        return torch.randn(BATCH_SIZE, self.length, self.width, generator=chance).to(self.device, self.dtype)

    def change_tokens(self, x: Tensor, mask: Tensor, *, scale: float = 1.0) -> Tensor:
        """The same batch with other content where `mask` (B, L) is True; no place there keeps what it had."""
        if self.vocab is None:
            return torch.where(mask[..., None], self.make_input(seed=1)[:, : x.size(1)] * scale, x)
        low = min(5, self.vocab // 2)
        step = 1 + self.make_input(seed=1)[:, : x.size(1)] % (self.vocab - low - 1)
        return torch.where(mask, low + (x - low + step) % (self.vocab - low), x)

    def add_padding(self, x: Tensor, left: int, right: int) -> Tensor:
        """Padding beside the batch: the pad token, or zeros."""
        return F.pad(x, (left, right), value=self.pad_id) if x.dim() == 2 else F.pad(x, (0, 0, left, right))

    def run(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        """The output, (B, L, ...) with at least three axes."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a foreign module warns of is between it and its user
            out = extract_tensor(self.call(self.module, x, keep))
        if keep is not None and out.dim() > 1 and out.size(1) < x.size(1):  # nn.TransformerEncoder cuts common padding
            out = F.pad(out, (0, 0) * (out.dim() - 2) + (0, x.size(1) - out.size(1)))
        if out.shape[:2] != x.shape[:2] or not out.is_floating_point():
            raise UsageError(
                f"gave {out.dtype} {tuple(out.shape)} for input {tuple(x.shape)}; needs floats (B, L, ...)"
            )
        return out[..., None] if out.dim() == 2 else out


def extract_tensor(out: Any) -> Tensor:
    """The tensor in what a module returns: itself, `.logits`, `.last_hidden_state`, or the first of a tuple."""
    for name in ("logits", "last_hidden_state"):
        if isinstance(getattr(out, name, None), Tensor):
            return getattr(out, name)
    out = out[0] if isinstance(out, (tuple, list)) and out else out
    if not isinstance(out, Tensor):
        raise UsageError(f"gave {type(out).__name__}; needs a tensor, a tuple that starts with one, or `.logits`")
    return out


def make_subject(module: Any, *, call: Call | None, vocab: int | None, width: int | None, length: int) -> CheckSubject:
    """How to call the module: as the caller says, or else the first way that runs, with its mask read by measurement."""
    dtype, device = _find_dtype_and_device(module)
    needed, masks, numbered = _inspect_signature(module)
    readings = [MaskArgument(name, *meaning) for name in masks for meaning in MASK_ARGUMENTS[name]]
    always = any(name in MASK_ARGUMENTS for name in needed or [])
    tried: list[str] = []
    for form, some_vocab, some_width in _generate_candidates(module, vocab, width, None if call else needed):
        plain = CallStyle(form, dtype, batch_first=_is_batch_first(module))
        ways = [replace(plain, mask=reading, requires_mask=True) for reading in readings] if always else [plain]
        for way in [call] if call else ways:
            subject = CheckSubject(module, way, dtype, device, length, some_vocab, some_width, _find_pad_id(module))
            x = subject.make_input()
            try:
                subject.run(x)
            except Exception as error:  # a foreign module may raise anything
                tried.append(f"  {'call' if call else way} on {tuple(x.shape)}: {_format_error(error)}")
                continue
            return _choose_mask(subject, way, readings, numbered) if isinstance(way, CallStyle) else subject
    raise UsageError(_format_failure(module, needed, tried))


def _choose_mask(
    subject: CheckSubject, style: CallStyle, masks: list[MaskArgument], takes_position_ids: bool
) -> CheckSubject:
    """The same subject, with the mask argument it takes, if any, read as it leaks least."""
    best, least, argument = subject, math.inf, None
    for reading in masks:
        if argument not in (None, reading.name):
            break  # an argument that runs is the one, even if it leaks
        other = replace(subject, call=replace(style, mask=reading, takes_position_ids=takes_position_ids))
        try:
            leak = _measure_leak(other)
        except Exception:  # it does not take this shape or kind
            continue
        if argument is None or leak < least:
            best, least, argument = other, leak, reading.name
        if leak == 0:
            break
    return best


def _measure_leak(subject: CheckSubject) -> float:
    """How much hidden tokens, on either side, move the visible outputs."""
    x = subject.make_input()
    at = torch.arange(subject.length, device=x.device)
    keep = torch.stack([at >= 0, at < subject.length - 3, at >= 2])
    before, after = subject.run(x, keep)[keep], subject.run(subject.change_tokens(x, ~keep), keep)[keep]
    return (after - before).abs().nan_to_num(nan=math.inf).max().item()


def _inspect_signature(module: Any) -> tuple[list[str] | None, list[str], bool]:
    """The arguments that must be given (None = cannot be known), the masks it knows, and whether it takes positions."""
    try:
        known = inspect.signature(module.forward if isinstance(module, nn.Module) else module).parameters
    except (TypeError, ValueError):  # written in C, such as torch's own functions
        return None, list(MASK_ARGUMENTS), False
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [name for name, p in known.items() if p.kind in plain and p.default is p.empty]
    loose = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in known.values())
    masks = [name for name in MASK_ARGUMENTS if name in known]
    return (None if loose and not needed else needed), masks[:1], "position_ids" in known


def _generate_candidates(
    module: Any, vocab: int | None, width: int | None, required: list[str] | None
) -> Iterator[tuple[str, int | None, int | None]]:
    """What could be fed to the module, likeliest first: a form, and a vocabulary or a width."""
    inputs = None if required is None else sum(name not in MASK_ARGUMENTS for name in required)
    parts = list(module.modules()) if isinstance(module, nn.Module) else []
    shapes = [p.shape for p in module.parameters()] if isinstance(module, nn.Module) else []
    vocabs = [part.num_embeddings for part in parts if isinstance(part, nn.Embedding) and part.num_embeddings > 3]
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
    """Where the module lives: the kind and the place of its first float parameter or buffer."""
    if isinstance(module, nn.Module):
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                return tensor.dtype, tensor.device
    return torch.get_default_dtype(), torch.get_default_device()


def _is_batch_first(module: Any) -> bool:
    """False for torch's own layers that want (L, B, W); a user's module turns its input itself if it has to."""
    if not type(module).__module__.startswith("torch.nn"):
        return True
    return all(getattr(part, "batch_first", True) for part in module.modules())


def _find_pad_id(module: Any) -> int:
    """The pad token of the first embedding that has one."""
    parts = module.modules() if isinstance(module, nn.Module) else ()
    pads = [part.padding_idx for part in parts if isinstance(part, nn.Embedding) and part.padding_idx is not None]
    return pads[0] if pads else 0


def _split_heads(x: Tensor) -> Tensor:
    """(B, L, W) to (B, H, L, D)."""
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def _format_error(error: Exception) -> str:
    """An error in one line."""
    said = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {said[:120]}"


def _format_failure(module: Any, required: list[str] | None, attempts: list[str]) -> str:
    """What to say when no way to call the module was found."""
    name = module.__name__ if inspect.isroutine(module) else type(module).__name__
    what = (
        "\n".join(attempts) or f"  nothing, since it needs {len(required or [])} arguments: {', '.join(required or [])}"
    )
    return (
        f"No way to call {name} was found. Tried:\n{what}\n"
        "Say what it takes with vocab=... (tokens) or width=... (vectors), or hand in how to call it:\n"
        "  check(module, width=64, call=lambda module, x, keep: module(x, mask=keep))\n"
        "where x is (B, L) tokens or (B, L, width) vectors, keep is (B, L) with True = real token, or None for all real,\n"
        'and the answer is (B, L, ...). If it cannot hide padding, ignore keep and add padding="none".'
    )
