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

from saccade.attention.sight import positions
from saccade.errors import UsageError

Call = Callable[[Any, Tensor, Tensor | None], Any]
"""call(module, x, keep) -> (B, L, ...): x is tokens (B, L) or vectors (B, L, W); keep is (B, L), True = real, or None."""

ROWS, HEADS, WIDTH = 3, 2, 12  # no two axes are of one length, so a mask on the wrong axis does not run

SENSES: dict[str, Callable[[Tensor, torch.dtype], Tensor]] = {
    "True = look": lambda keep, _: keep,
    "1 = look": lambda keep, _: keep.long(),
    "-inf = ignore": lambda keep, dtype: torch.zeros_like(keep, dtype=dtype).masked_fill(~keep, -math.inf),
    "True = ignore": lambda keep, _: ~keep,
}
SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "(B, K)": lambda mask: mask,
    "(B, Q, K)": lambda mask: mask[:, None].expand(-1, mask.size(1), -1),
    "(B, 1, Q, K)": lambda mask: mask[:, None, None].expand(-1, 1, mask.size(1), -1),
}
ANY = [(sense, shape) for shape in SHAPES for sense in SENSES]
MASKS = {  # the arguments we know, and what each may mean; of several in one signature, the first
    "keep": [("True = look", "(B, K)")],
    "key_padding_mask": [("True = ignore", "(B, K)")],
    "src_key_padding_mask": [("True = ignore", "(B, K)")],
    "attention_mask": [("1 = look", "(B, K)"), ("-inf = ignore", "(B, 1, Q, K)")],
    "padding_mask": ANY,
    "pad_mask": ANY,
    "attn_mask": ANY,
    "mask": ANY,
}
FORMS: dict[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "f(tokens)": lambda x: (x,),
    "f(x)": lambda x: (x,),
    # q, k and v differ, and each is made place by place, so what holds for x holds for them
    "f(q, k, v)": lambda x: (x, x.roll(1, -1), x.flip(-1)),
    "f(q, k, v) with heads": lambda x: tuple(_split(y) for y in (x, x.roll(1, -1), x.flip(-1))),
}


@dataclass(frozen=True)
class Reading:
    """One meaning of one mask argument."""

    argument: str
    sense: str
    shape: str

    def __call__(self, keep: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
        return {self.argument: SHAPES[self.shape](SENSES[self.sense](keep, dtype))}

    def __str__(self) -> str:
        return f"{self.argument} {self.shape} where {self.sense}"


@dataclass(frozen=True)
class Way:
    """A `Call` that was found by trying."""

    form: str
    dtype: torch.dtype
    reading: Reading | None = None
    always: bool = False  # the mask has no default, so it is handed in even when nothing is hidden
    numbered: bool = False  # takes `position_ids`, which then count the real tokens only
    batch_first: bool = True

    def __call__(self, module: Any, x: Tensor, keep: Tensor | None) -> Any:
        given = {}
        if keep is None and self.always:
            keep = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        if keep is not None and self.reading is not None:
            given = self.reading(keep, self.dtype)
            if self.numbered:
                given["position_ids"] = positions(keep).clamp(min=0)
        if self.batch_first:
            out = first(module(*FORMS[self.form](x), **given))
        else:
            out = first(module(*FORMS[self.form](x.transpose(0, 1)), **given)).transpose(0, 1)
        return out.transpose(1, 2).flatten(2) if self.form.endswith("heads") else out

    def __str__(self) -> str:
        return self.form + (f", {self.reading}" if self.reading else "") + (", position_ids" if self.numbered else "")


@dataclass(frozen=True)
class Subject:
    """A module, how to call it, and what to feed it: `vocab` for tokens, `width` for vectors."""

    module: Any
    call: Call
    dtype: torch.dtype
    device: torch.device
    length: int
    vocab: int | None = None
    width: int | None = None
    pad: int = 0  # the token to pad with

    def draw(self, seed: int = 0) -> Tensor:
        """A batch, (B, L) tokens or (B, L, W) vectors; the same for the same seed, whatever the global one."""
        chance = torch.Generator().manual_seed(seed)
        if self.vocab is not None:  # the first few ids are often special
            x = torch.randint(min(5, self.vocab // 2), self.vocab, (ROWS, self.length), generator=chance)
            return x.to(self.device)
        if self.width is None:
            raise UsageError("A subject needs `vocab` or `width`; got neither.")
        return torch.randn(ROWS, self.length, self.width, generator=chance).to(self.device, self.dtype)

    def change(self, x: Tensor, where: Tensor, *, scale: float = 1.0) -> Tensor:
        """The same batch with other content `where` (B, L) is True; no place there keeps what it had."""
        if self.vocab is None:
            return torch.where(where[..., None], self.draw(seed=1)[:, : x.size(1)] * scale, x)
        low = min(5, self.vocab // 2)
        step = 1 + self.draw(seed=1)[:, : x.size(1)] % (self.vocab - low - 1)
        return torch.where(where, low + (x - low + step) % (self.vocab - low), x)

    def fill(self, x: Tensor, left: int, right: int) -> Tensor:
        """Padding beside the batch: the pad token, or zeros."""
        return F.pad(x, (left, right), value=self.pad) if x.dim() == 2 else F.pad(x, (0, 0, left, right))

    def run(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        """The output, (B, L, ...) with at least three axes."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a foreign module warns of is between it and its user
            out = first(self.call(self.module, x, keep))
        if keep is not None and out.dim() > 1 and out.size(1) < x.size(1):  # nn.TransformerEncoder cuts common padding
            out = F.pad(out, (0, 0) * (out.dim() - 2) + (0, x.size(1) - out.size(1)))
        if out.shape[:2] != x.shape[:2] or not out.is_floating_point():
            raise UsageError(
                f"gave {out.dtype} {tuple(out.shape)} for input {tuple(x.shape)}; needs floats (B, L, ...)"
            )
        return out[..., None] if out.dim() == 2 else out


def first(out: Any) -> Tensor:
    """The tensor in what a module returns: itself, `.logits`, `.last_hidden_state`, or the first of a tuple."""
    for name in ("logits", "last_hidden_state"):
        if isinstance(getattr(out, name, None), Tensor):
            return getattr(out, name)
    out = out[0] if isinstance(out, (tuple, list)) and out else out
    if not isinstance(out, Tensor):
        raise UsageError(f"gave {type(out).__name__}; needs a tensor, a tuple that starts with one, or `.logits`")
    return out


def find(module: Any, *, call: Call | None, vocab: int | None, width: int | None, length: int) -> Subject:
    """How to call the module: as the caller says, or else the first way that runs, with its mask read by measurement."""
    dtype, device = _home(module)
    needed, masks, numbered = _signature(module)
    readings = [Reading(name, *meaning) for name in masks for meaning in MASKS[name]]
    always = any(name in MASKS for name in needed or [])
    tried: list[str] = []
    for form, some_vocab, some_width in _feeds(module, vocab, width, None if call else needed):
        plain = Way(form, dtype, batch_first=_batch_first(module))
        ways = [replace(plain, reading=reading, always=True) for reading in readings] if always else [plain]
        for way in [call] if call else ways:
            subject = Subject(module, way, dtype, device, length, some_vocab, some_width, _pad(module))
            x = subject.draw()
            try:
                subject.run(x)
            except Exception as error:  # a foreign module may raise anything
                tried.append(f"  {'call' if call else way} on {tuple(x.shape)}: {_short(error)}")
                continue
            return _read(subject, way, readings, numbered) if isinstance(way, Way) else subject
    raise UsageError(_unknown(module, needed, tried))


def _read(subject: Subject, way: Way, readings: list[Reading], numbered: bool) -> Subject:
    """The same subject, with the mask argument it takes, if any, read as it leaks least."""
    best, least, argument = subject, math.inf, None
    for reading in readings:
        if argument not in (None, reading.argument):
            break  # an argument that runs is the one, even if it leaks
        other = replace(subject, call=replace(way, reading=reading, numbered=numbered))
        try:
            leak = _leak(other)
        except Exception:  # it does not take this shape or kind
            continue
        if argument is None or leak < least:
            best, least, argument = other, leak, reading.argument
        if leak == 0:
            break
    return best


def _leak(subject: Subject) -> float:
    """How much hidden tokens, on either side, move the visible outputs."""
    x = subject.draw()
    at = torch.arange(subject.length, device=x.device)
    keep = torch.stack([at >= 0, at < subject.length - 3, at >= 2])
    before, after = subject.run(x, keep)[keep], subject.run(subject.change(x, ~keep), keep)[keep]
    return (after - before).abs().nan_to_num(nan=math.inf).max().item()


def _signature(module: Any) -> tuple[list[str] | None, list[str], bool]:
    """The arguments that must be given (None = cannot be known), the masks it knows, and whether it takes positions."""
    try:
        known = inspect.signature(module.forward if isinstance(module, nn.Module) else module).parameters
    except (TypeError, ValueError):  # written in C, such as torch's own functions
        return None, list(MASKS), False
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [name for name, p in known.items() if p.kind in plain and p.default is p.empty]
    loose = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in known.values())
    masks = [name for name in MASKS if name in known]
    return (None if loose and not needed else needed), masks[:1], "position_ids" in known


def _feeds(
    module: Any, vocab: int | None, width: int | None, needed: list[str] | None
) -> Iterator[tuple[str, int | None, int | None]]:
    """What could be fed to the module, likeliest first: a form, and a vocabulary or a width."""
    inputs = None if needed is None else sum(name not in MASKS for name in needed)
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


def _home(module: Any) -> tuple[torch.dtype, torch.device]:
    """Where the module lives: the kind and the place of its first float parameter or buffer."""
    if isinstance(module, nn.Module):
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                return tensor.dtype, tensor.device
    return torch.get_default_dtype(), torch.get_default_device()


def _batch_first(module: Any) -> bool:
    """False for torch's own layers that want (L, B, W); a user's module turns its input itself if it has to."""
    if not type(module).__module__.startswith("torch.nn"):
        return True
    return all(getattr(part, "batch_first", True) for part in module.modules())


def _pad(module: Any) -> int:
    """The pad token of the first embedding that has one."""
    parts = module.modules() if isinstance(module, nn.Module) else ()
    pads = [part.padding_idx for part in parts if isinstance(part, nn.Embedding) and part.padding_idx is not None]
    return pads[0] if pads else 0


def _split(x: Tensor) -> Tensor:
    """(B, L, W) to (B, H, L, D)."""
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def _short(error: Exception) -> str:
    """An error in one line."""
    said = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {said[:120]}"


def _unknown(module: Any, needed: list[str] | None, tried: list[str]) -> str:
    """What to say when no way to call the module was found."""
    name = module.__name__ if inspect.isroutine(module) else type(module).__name__
    what = "\n".join(tried) or f"  nothing, since it needs {len(needed or [])} arguments: {', '.join(needed or [])}"
    return (
        f"No way to call {name} was found. Tried:\n{what}\n"
        "Say what it takes with vocab=... (tokens) or width=... (vectors), or hand in how to call it:\n"
        "  check(module, width=64, call=lambda module, x, keep: module(x, mask=keep))\n"
        "where x is (B, L) tokens or (B, L, width) vectors, keep is (B, L) with True = real token, or None for all real,\n"
        'and the answer is (B, L, ...). If it cannot hide padding, ignore keep and add padding="none".'
    )
