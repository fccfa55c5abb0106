"""What `saccade doctor` tries out: small computations whose right result is known, and how fast this machine is."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor, nn

TEXTS = ["the 3rd of May 2019", "3. Mai 2019", "el 3 de mayo de 2019", "2019年5月3日", "3 mai 2019"]
MOMENT = 0.4  # seconds that a speed is measured for
State = Literal["ok", "warning", "missing"]


@dataclass(frozen=True)
class Line:
    """One thing that was looked at: what was found, whether that will do, and if not what to do."""

    name: str
    found: str
    state: State = "ok"
    todo: str = ""


def checks() -> Iterator[Line]:
    """Every computation and every speed, one after the other."""
    for name, check in CHECKS.items():
        try:
            yield check(name)
        except Exception as error:  # whatever breaks here is what the doctor was asked to find
            told = f"{type(error).__name__}: {error}".splitlines()[0]
            yield Line(
                name, told, "missing", "install saccade again in a fresh environment, and report this if it stays"
            )


def attention(name: str) -> Line:
    """A model with the fused kernel and the same with the definition: outputs and gradients."""
    import torch

    torch.manual_seed(0)
    model, tokens = _small(), torch.randint(0, 31, (2, 23))
    fast = _passed(model, tokens)
    slow = _passed(defined(model), tokens)
    far = max(float((a - b).abs().max()) for a, b in zip(fast, slow, strict=True))
    found = f"fused and by definition differ by {far:.0e} in outputs and gradients"
    return Line(
        name, found, "ok" if far < 1e-4 else "missing", "" if far < 1e-4 else "this build of torch computes wrongly"
    )


def kernel(name: str) -> Line:
    """Whether torch has a kernel that never builds the matrix of all pairs."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = torch.ones(1, 2, 16, 8)
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            F.scaled_dot_product_attention(q, q, q, is_causal=True)
    except RuntimeError:
        return Line(
            name, "none", "warning", "attention will need memory for all pairs of tokens; use another build of torch"
        )
    return Line(name, "there is one")


def tokenizer(name: str) -> Line:
    """A tokenizer is learnt, and gives back what it was given."""
    from saccade.tasks.words import learn_tokenizer

    words = learn_tokenizer(TEXTS * 5, "characters", None, frame="t5", running=False)
    back = [words.decode(words.encode(text).ids) for text in TEXTS]
    wrong = [text for text, again in zip(TEXTS, back, strict=True) if text != again]
    if wrong:
        return Line(name, f"{wrong[0]!r} came back changed", "missing", "install tokenizers again")
    return Line(name, f"{len(TEXTS)} texts in five languages came back as they were")


def checkpoint(name: str) -> Line:
    """A checkpoint is written and read back."""
    import torch

    from saccade.training.checkpoint import Store

    tensors = {"model": {"weight": torch.randn(7, 5), "count": torch.tensor(3)}}
    with tempfile.TemporaryDirectory() as place:
        Store(Path(place)).save(1, tensors, {"seed": 0})
        found = Store(Path(place)).newest(warn=lambda text: None)
        same = found is not None and all(
            torch.equal(found.tensors("model")[key], value) for key, value in tensors["model"].items()
        )
    if not same:
        return Line(
            name, f"what was written to {tempfile.gettempdir()} is not what was read", "missing", "check the disk"
        )
    return Line(name, "written, verified and read, bit for bit")


def multiply(name: str) -> Line:
    """Large matrix products: what most of training is."""
    import torch

    size = 512
    a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    speed = 2 * size**3 * _often(lambda: torch.mm(a, b, out=out)) / 1e9
    cores = torch.get_num_threads()
    slow = speed / cores < 5  # any processor of the last ten years does ten in one thread
    return Line(name, f"{speed:,.0f} GFLOP/s in {cores} threads", *_hurried(slow))


def memory(name: str) -> Line:
    """Copies too large for the processor's cache: what decoding waits for."""
    import torch

    size = 2**26
    source, target = torch.ones(size, dtype=torch.uint8), torch.empty(size, dtype=torch.uint8)
    speed = 2 * size * _often(lambda: target.copy_(source)) / 1e9  # read and written
    return Line(name, f"{speed:,.1f} GB/s copied", *_hurried(speed < 1))


def training(name: str) -> Line:
    """Steps of a tiny translator of dates."""
    from saccade.data.samples import sample
    from saccade.models.new import new
    from saccade.models.table import family
    from saccade.tasks.feed import feed
    from saccade.tasks.table import task_class
    from saccade.tasks.words import learn_tokenizer
    from saccade.training.config import Config
    from saccade.training.loop import Learner

    kind, examples = task_class("translate"), sample("dates").make(200, 0)
    task, made = kind(kind.Config(pieces="characters")), family("transformer")
    words = learn_tokenizer(list(task.texts(examples)), "characters", None, frame=task.frame, running=False)
    model = new(made, made.config(vocab=words.vocab, width=64, layers=1, heads=4, inner=128, begin=words.begin))
    model.tokenizer = words
    read = feed(task, examples, model, tokens=1024)
    learner = Learner(model, task, read, Config(device="cpu", epochs=1000, tokens=1024))
    learner.step()  # warms up
    steps = [learner.step()]
    until = time.monotonic() + MOMENT
    while time.monotonic() < until:
        steps.append(learner.step())
    tokens, seconds = sum(step.tokens for step in steps), sum(step.seconds for step in steps)
    count = sum(p.numel() for p in model.parameters())
    return Line(name, f"{tokens / seconds:,.0f} tokens/s with {count:,} parameters", *_hurried(tokens / seconds < 500))


CHECKS: dict[str, Callable[[str], Line]] = {
    "attention": attention,
    "fused kernel": kernel,
    "tokenizer": tokenizer,
    "checkpoint": checkpoint,
    "matrix product": multiply,
    "memory speed": memory,
    "training speed": training,
}


def defined(model: "nn.Module") -> "nn.Module":
    """The same model, its attention computed as it is defined and not as it is fast."""
    from saccade.attention import Mechanism

    for module in model.modules():
        if isinstance(module, Mechanism):
            module.attend = MethodType(Mechanism.attend, module)
    return model


def _small() -> "nn.Module":
    from saccade.models.gpt2 import FAMILY

    return FAMILY.build(FAMILY.config(vocab=31, width=24, layers=2, heads=3, inner=48, length=32))


def _passed(model: "nn.Module", tokens: "Tensor") -> "list[Tensor]":
    """The outputs, and the gradients of their squares."""
    import torch

    from saccade.data import Batch, Text

    writer: Any = model.eval()
    writer.zero_grad()
    state, text = writer.start(Batch(Text(tokens)))
    out = writer.step(text, state)
    out.square().mean().backward()
    return [out.detach()] + [torch.clone(p.grad) for p in model.parameters() if p.grad is not None]


def _often(work: Callable[[], object]) -> float:
    """How often a second it can be done."""
    work()
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < MOMENT:
        work()
        count += 1
    return count / (time.perf_counter() - began)


def _hurried(slow: bool) -> tuple[State, str]:
    if not slow:
        return "ok", ""
    load = f"the load is {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "look at the load"
    return "warning", f"this is slow; stop other programs ({load}), or set OMP_NUM_THREADS to the free cores"
