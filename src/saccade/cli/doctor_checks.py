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

SAMPLE_TEXTS = ["the 3rd of May 2019", "3. Mai 2019", "el 3 de mayo de 2019", "2019年5月3日", "3 mai 2019"]
MIN_SECONDS_MEASURED = 0.4  # seconds that a speed is measured for
Status = Literal["ok", "warning", "missing"]


@dataclass(frozen=True)
class CheckResult:
    """One thing that was looked at: what was found, whether that will do, and if not what to do."""

    name: str
    result: str
    status: Status = "ok"
    fix: str = ""


def run_checks() -> Iterator[CheckResult]:
    """Every computation and every speed, one after the other."""
    for name, check in CHECKS.items():
        try:
            yield check(name)
        except Exception as error:  # whatever breaks here is what the doctor was asked to find
            told = f"{type(error).__name__}: {error}".splitlines()[0]
            yield CheckResult(
                name, told, "missing", "install saccade again in a fresh environment, and report this if it stays"
            )


def check_attention(name: str) -> CheckResult:
    """A model with the fused kernel and the same with the definition: outputs and gradients."""
    import torch

    torch.manual_seed(0)
    model, tokens = _build_small_model(), torch.randint(0, 31, (2, 23))
    fast = _run_forward_backward(model, tokens)
    slow = _run_forward_backward(use_reference_attention(model), tokens)
    far = max(float((a - b).abs().max()) for a, b in zip(fast, slow, strict=True))
    found = f"fused and by definition differ by {far:.0e} in outputs and gradients"
    return CheckResult(
        name, found, "ok" if far < 1e-4 else "missing", "" if far < 1e-4 else "this build of torch computes wrongly"
    )


def check_fused_kernel(name: str) -> CheckResult:
    """Whether torch has a kernel that never builds the matrix of all pairs."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = torch.ones(1, 2, 16, 8)
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            F.scaled_dot_product_attention(q, q, q, is_causal=True)
    except RuntimeError:
        return CheckResult(
            name, "none", "warning", "attention will need memory for all pairs of tokens; use another build of torch"
        )
    return CheckResult(name, "there is one")


def check_tokenizer(name: str) -> CheckResult:
    """A tokenizer is learnt, and gives back what it was given."""
    from saccade.tasks.learn_tokenizer import learn_tokenizer

    words = learn_tokenizer(SAMPLE_TEXTS * 5, "characters", None, token_template="t5", is_text_stream=False)
    back = [words.decode(words.encode(text).ids) for text in SAMPLE_TEXTS]
    wrong = [text for text, again in zip(SAMPLE_TEXTS, back, strict=True) if text != again]
    if wrong:
        return CheckResult(name, f"{wrong[0]!r} came back changed", "missing", "install tokenizers again")
    return CheckResult(name, f"{len(SAMPLE_TEXTS)} texts in five languages came back as they were")


def check_checkpoint(name: str) -> CheckResult:
    """A checkpoint is written and read back."""
    import torch

    from saccade.training.checkpoint.store import CheckpointStore

    tensors = {"model": {"weight": torch.randn(7, 5), "count": torch.tensor(3)}}
    with tempfile.TemporaryDirectory() as place:
        CheckpointStore(Path(place)).save(1, tensors, {"seed": 0})
        found = CheckpointStore(Path(place)).read_newest(warn=lambda text: None)
        same = found is not None and all(
            torch.equal(found.read_tensors("model")[key], value) for key, value in tensors["model"].items()
        )
    if not same:
        return CheckResult(
            name, f"what was written to {tempfile.gettempdir()} is not what was read", "missing", "check the disk"
        )
    return CheckResult(name, "written, verified and read, bit for bit")


def measure_matmul_speed(name: str) -> CheckResult:
    """Large matrix products: what most of training is."""
    import torch

    size = 512
    a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    speed = 2 * size**3 * _measure_calls_per_second(lambda: torch.mm(a, b, out=out)) / 1e9
    cores = torch.get_num_threads()
    slow = speed / cores < 5  # any processor of the last ten years does ten in one thread
    return CheckResult(name, f"{speed:,.0f} GFLOP/s in {cores} threads", *_rate_speed(slow))


def measure_memory_speed(name: str) -> CheckResult:
    """Copies too large for the processor's cache: what decoding waits for."""
    import torch

    size = 2**26
    source, target = torch.ones(size, dtype=torch.uint8), torch.empty(size, dtype=torch.uint8)
    speed = 2 * size * _measure_calls_per_second(lambda: target.copy_(source)) / 1e9  # read and written
    return CheckResult(name, f"{speed:,.1f} GB/s copied", *_rate_speed(speed < 1))


def measure_training_speed(name: str) -> CheckResult:
    """Steps of a tiny translator of dates."""
    from saccade.data.samples import get_sample
    from saccade.models.build import new
    from saccade.models.registry import get_family
    from saccade.tasks.batches import make_batches
    from saccade.tasks.learn_tokenizer import learn_tokenizer
    from saccade.tasks.registry import task_class
    from saccade.training.config import Config
    from saccade.training.loop import Learner

    kind, examples = task_class("translate"), get_sample("dates").make(200, 0)
    task, made = kind(kind.Config(tokenizer="characters")), get_family("transformer")
    words = learn_tokenizer(
        list(task.tokenizer_texts(examples)),
        "characters",
        None,
        token_template=task.token_template,
        is_text_stream=False,
    )
    model = new(
        made,
        made.config_class(vocab=words.vocab, width=64, layers=1, heads=4, ffn_width=128, decoder_start_id=words.bos_id),
    )
    model.tokenizer = words
    read = make_batches(task, examples, model, batch_tokens=1024)
    learner = Learner(model, task, read, Config(device="cpu", epochs=1000, batch_tokens=1024))
    learner.step()  # warms up
    steps = [learner.step()]
    until = time.monotonic() + MIN_SECONDS_MEASURED
    while time.monotonic() < until:
        steps.append(learner.step())
    tokens, seconds = sum(step.tokens for step in steps), sum(step.seconds for step in steps)
    count = sum(p.numel() for p in model.parameters())
    return CheckResult(
        name, f"{tokens / seconds:,.0f} tokens/s with {count:,} parameters", *_rate_speed(tokens / seconds < 500)
    )


CHECKS: dict[str, Callable[[str], CheckResult]] = {
    "attention": check_attention,
    "fused kernel": check_fused_kernel,
    "tokenizer": check_tokenizer,
    "checkpoint": check_checkpoint,
    "matrix product": measure_matmul_speed,
    "memory speed": measure_memory_speed,
    "training speed": measure_training_speed,
}


def use_reference_attention(model: "nn.Module") -> "nn.Module":
    """The same model, its attention computed as it is defined and not as it is fast."""
    from saccade.attention import Mechanism

    for module in model.modules():
        if isinstance(module, Mechanism):
            module.attend = MethodType(Mechanism.attend, module)
    return model


def _build_small_model() -> "nn.Module":
    from saccade.models.families.gpt2 import FAMILY

    return FAMILY.new_body(FAMILY.config_class(vocab=31, width=24, layers=2, heads=3, ffn_width=48, max_positions=32))


def _run_forward_backward(model: "nn.Module", tokens: "Tensor") -> "list[Tensor]":
    """The outputs, and the gradients of their squares."""
    import torch

    from saccade.data import Batch, Text

    writer: Any = model.eval()
    writer.zero_grad()
    state, text = writer.start(Batch(Text(tokens)))
    out = writer.step(text, state)
    out.square().mean().backward()
    return [out.detach()] + [torch.clone(p.grad) for p in model.parameters() if p.grad is not None]


def _measure_calls_per_second(work: Callable[[], object]) -> float:
    """How often a second it can be done."""
    work()
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < MIN_SECONDS_MEASURED:
        work()
        count += 1
    return count / (time.perf_counter() - began)


def _rate_speed(is_slow: bool) -> tuple[Status, str]:
    if not is_slow:
        return "ok", ""
    load = f"the load is {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "look at the load"
    return "warning", f"this is slow; stop other programs ({load}), or set OMP_NUM_THREADS to the free cores"
