"""Mixed precision: resolves `train.precision = auto` to bfloat16 where the hardware supports it, and to float32 elsewhere.

On a CPU, weights, norms, sums of losses, recurrent layers and the kernels of full and sparse attention stay in float32 in either
case. A CPU without bfloat16 instructions is 5 to 50 times slower in bfloat16 than in float32, so `auto` never chooses it there.
"""

from dataclasses import replace
from pathlib import Path

import torch

from saccade.training.config import Config
from saccade.training.distributed import single_process_world

BFLOAT16_CPU_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")  # names in /proc/cpuinfo; measured with the first, on AMD


def resolve_precision(config: Config) -> Config:
    """The config with `precision="auto"` replaced by the precision that this machine trains in."""
    if config.precision != "auto":
        return config
    device_type = single_process_world(config.device).device.type
    if device_type == "cuda":
        has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        has_bfloat16 = device_type == "cpu" and cpu_has_bfloat16() is True
    return replace(config, precision="bfloat16" if has_bfloat16 else "float32")


def cpu_has_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool | None:
    """Whether this CPU has bfloat16 instructions; None if /proc/cpuinfo does not exist."""
    if not cpuinfo.exists():
        return None
    flags = set(cpuinfo.read_text(encoding="utf-8").split())
    return any(flag in flags for flag in BFLOAT16_CPU_FLAGS)
