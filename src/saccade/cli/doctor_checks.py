"""Checks of `saccade doctor`: small computations with a known result, and speed measurements of this machine."""

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
MIN_SECONDS_MEASURED = 0.4  # per speed measurement
Status = Literal["ok", "warning", "missing"]


@dataclass(frozen=True)
class CheckResult:
    """Result of one check: its finding, its status, and what to do unless the status is ok."""

    name: str
    result: str
    status: Status = "ok"
    fix: str = ""


def run_checks() -> Iterator[CheckResult]:
    """Run every check and yield its result; a check that raises an exception has failed."""
    for name, check in CHECKS.items():
        try:
            yield check(name)
        except Exception as error:  # any failure is a result of the check
            message = f"{type(error).__name__}: {error}".splitlines()[0]
            fix = "install saccade again in a new environment; if that does not help, report this error"
            yield CheckResult(name, message, "missing", fix)


def check_attention(name: str) -> CheckResult:
    """Compare the fused kernel with the reference attention, in outputs and gradients."""
    import torch

    torch.manual_seed(0)
    model, tokens = _build_small_model(), torch.randint(0, 31, (2, 23))
    fast = _run_forward_backward(model, tokens)
    slow = _run_forward_backward(use_reference_attention(model), tokens)
    error = max(float((a - b).abs().max()) for a, b in zip(fast, slow, strict=True))
    result = f"outputs and gradients of fused and reference attention differ by at most {error:.0e}"
    if error < 1e-4:
        return CheckResult(name, result)
    return CheckResult(name, result, "missing", "this build of torch gives wrong results; install another")


def check_fused_kernel(name: str) -> CheckResult:
    """Check that torch has a fused attention kernel (FlashAttention) for this device."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = torch.ones(1, 2, 16, 8)
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            F.scaled_dot_product_attention(q, q, q, is_causal=True)
    except RuntimeError:
        fix = "attention needs memory quadratic in the sequence length; use another build of torch"
        return CheckResult(name, "not available", "warning", fix)
    return CheckResult(name, "available")


def check_encoder_kernels(name: str) -> CheckResult:
    """Compile or load the kernels of encoders, and compare a product with its definition on each instruction set."""
    import torch

    from saccade.engine.kernels import library, reference
    from saccade.engine.kernels.matrix import PER_BLOCK, PackedMatrix

    if not library.is_available():
        fix = "encoders run layer by layer in PyTorch, which is slower; install g++, or leave SACCADE_NATIVE unset"
        return CheckResult(name, library.unavailable_reason(), "warning", fix)
    torch.manual_seed(0)
    x, weight = torch.randn(7, 97), torch.randn(70, 97)
    names = library.supported_instruction_sets()
    for instructions in names:
        for precision in PER_BLOCK:
            matrix = PackedMatrix(weight, None, precision)
            with library.use_instruction_set(instructions), torch.no_grad():
                error = float((matrix(x) - reference.linear(matrix, x)).abs().max())
            if not error < 1e-3:
                fix = f"leave out {instructions} by setting SACCADE_KERNELS to another of {', '.join(names)}, and report this"
                return CheckResult(name, f"{precision} products are wrong with {instructions}", "missing", fix)
    native = "" if library.has_native_bfloat16() else "; bfloat16 is emulated"
    return CheckResult(name, f"{library.instruction_set()} of {', '.join(names)}{native}")


def check_tokenizer(name: str) -> CheckResult:
    """Train a tokenizer, and check that decoding inverts encoding."""
    from saccade.tasks.learn_tokenizer import learn_tokenizer

    tokenizer = learn_tokenizer(SAMPLE_TEXTS * 5, "characters", None, token_template="t5", is_text_stream=False)
    decoded = [tokenizer.decode(tokenizer.encode(text).ids) for text in SAMPLE_TEXTS]
    wrong = [text for text, output in zip(SAMPLE_TEXTS, decoded, strict=True) if text != output]
    if wrong:
        return CheckResult(name, f"{wrong[0]!r} is not restored by decoding", "missing", "install tokenizers again")
    return CheckResult(name, f"{len(SAMPLE_TEXTS)} texts in five languages encoded and decoded without change")


def check_checkpoint(name: str) -> CheckResult:
    """Write a checkpoint, read it back and compare."""
    import torch

    from saccade.training.checkpoint.store import CheckpointStore

    tensors = {"model": {"weight": torch.randn(7, 5), "count": torch.tensor(3)}}
    with tempfile.TemporaryDirectory() as directory:
        CheckpointStore(Path(directory)).save(1, tensors, {"seed": 0})
        checkpoint = CheckpointStore(Path(directory)).read_newest(warn=lambda text: None)
        same = checkpoint is not None and all(
            torch.equal(checkpoint.read_tensors("model")[key], value) for key, value in tensors["model"].items()
        )
    if not same:
        result = f"the checkpoint read from {tempfile.gettempdir()} differs from the one written"
        return CheckResult(name, result, "missing", "check the disk")
    return CheckResult(name, "written, verified and read back, bit for bit")


def measure_matmul_speed(name: str) -> CheckResult:
    """Measure the speed of large matrix products, which dominate the time of training."""
    import torch

    size = 512
    a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    speed = 2 * size**3 * _measure_calls_per_second(lambda: torch.mm(a, b, out=out)) / 1e9
    threads = torch.get_num_threads()
    slow = speed / threads < 5  # any processor of the last ten years does ten in one thread
    return CheckResult(name, f"{speed:,.0f} GFLOP/s with {threads} threads", *_rate_speed(slow))


def measure_memory_speed(name: str) -> CheckResult:
    """Measure the speed of copies that exceed the processor's cache; memory bandwidth limits decoding."""
    import torch

    size = 2**26
    source, target = torch.ones(size, dtype=torch.uint8), torch.empty(size, dtype=torch.uint8)
    speed = 2 * size * _measure_calls_per_second(lambda: target.copy_(source)) / 1e9  # each byte is read and written
    return CheckResult(name, f"{speed:,.1f} GB/s", *_rate_speed(speed < 1))


def measure_training_speed(name: str) -> CheckResult:
    """Measure the speed of training on a tiny model that translates dates."""
    from saccade.data.samples import get_sample
    from saccade.models.build import new
    from saccade.models.registry import get_family
    from saccade.tasks.batches import make_batches
    from saccade.tasks.learn_tokenizer import learn_tokenizer
    from saccade.tasks.registry import task_class
    from saccade.training.config import Config
    from saccade.training.loop import Learner

    translate, examples = task_class("translate"), get_sample("dates").make(200, 0)
    task, family = translate(translate.Config(tokenizer="characters")), get_family("transformer")
    texts = list(task.tokenizer_texts(examples))
    tokenizer = learn_tokenizer(texts, "characters", None, token_template=task.token_template, is_text_stream=False)
    sizes = {"vocab": tokenizer.vocab, "width": 64, "layers": 1, "heads": 4, "ffn_width": 128}
    model = new(family, family.config_class(**sizes, decoder_start_id=tokenizer.bos_id))
    model.tokenizer = tokenizer
    batches = make_batches(task, examples, model, batch_tokens=1024)
    learner = Learner(model, task, batches, Config(device="cpu", epochs=1000, batch_tokens=1024))
    learner.step()  # untimed: the first step allocates memory
    steps = [learner.step()]
    deadline = time.monotonic() + MIN_SECONDS_MEASURED
    while time.monotonic() < deadline:
        steps.append(learner.step())
    speed = sum(step.tokens for step in steps) / sum(step.seconds for step in steps)
    count = sum(p.numel() for p in model.parameters())
    return CheckResult(name, f"{speed:,.0f} tokens/s with {count:,} parameters", *_rate_speed(speed < 500))


CHECKS: dict[str, Callable[[str], CheckResult]] = {
    "attention": check_attention,
    "fused kernel": check_fused_kernel,
    "encoder kernels": check_encoder_kernels,
    "tokenizer": check_tokenizer,
    "checkpoint": check_checkpoint,
    "matrix product": measure_matmul_speed,
    "memory speed": measure_memory_speed,
    "training speed": measure_training_speed,
}


def use_reference_attention(model: "nn.Module") -> "nn.Module":
    """Replace the fast attention of a model by its definition; returns the model."""
    from saccade.attention import Mechanism

    for module in model.modules():
        if isinstance(module, Mechanism):
            module.attend = MethodType(Mechanism.attend, module)
    return model


def _build_small_model() -> "nn.Module":
    from saccade.models.families.gpt2 import FAMILY

    return FAMILY.new_body(FAMILY.config_class(vocab=31, width=24, layers=2, heads=3, ffn_width=48, max_positions=32))


def _run_forward_backward(model: "nn.Module", tokens: "Tensor") -> "list[Tensor]":
    """The outputs of a model, and the gradients of the sum of their squares."""
    import torch

    from saccade.data import Batch, Text

    decoder: Any = model.eval()
    decoder.zero_grad()
    state, text = decoder.start(Batch(Text(tokens)))
    out = decoder.step(text, state)
    out.square().mean().backward()
    return [out.detach()] + [torch.clone(p.grad) for p in model.parameters() if p.grad is not None]


def _measure_calls_per_second(work: Callable[[], object]) -> float:
    """How many times per second `work` runs, after one untimed call."""
    work()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < MIN_SECONDS_MEASURED:
        work()
        count += 1
    return count / (time.perf_counter() - start)


def _rate_speed(is_slow: bool) -> tuple[Status, str]:
    if not is_slow:
        return "ok", ""
    load = f" (load average {os.getloadavg()[0]:.1f})" if hasattr(os, "getloadavg") else ""
    return "warning", f"this is slow; stop other programs{load}, or set OMP_NUM_THREADS to the number of free cores"
