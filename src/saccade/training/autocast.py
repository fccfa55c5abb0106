"""In which numbers products are taken: bfloat16 where the machine has instructions for it, and float32 where it has none.

Weights, norms, sums of losses, recurrent layers and the kernels of full and sparse attention stay in float32 on a processor
either way. Without instructions for bfloat16 a processor takes 5 to 50 times as long for it as for float32, so `auto` never
chooses it there.
"""

from dataclasses import replace
from pathlib import Path

import torch

from saccade.training.config import Config
from saccade.training.distributed import single_process_world

BFLOAT16_CPU_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")  # as Linux calls them; the first was measured, on AMD


def resolve_precision(config: Config) -> Config:
    """The same, with a precision where it was left to the machine."""
    if config.precision != "auto":
        return config
    where = single_process_world(config.device).device.type
    if where == "cuda":
        able = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        able = where == "cpu" and cpu_has_bfloat16() is True
    return replace(config, precision="bfloat16" if able else "float32")


def cpu_has_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool | None:
    """Whether this processor has instructions for bfloat16; None where the system does not say."""
    if not cpuinfo.exists():
        return None
    flags = set(cpuinfo.read_text(encoding="utf-8").split())
    return any(flag in flags for flag in BFLOAT16_CPU_FLAGS)
