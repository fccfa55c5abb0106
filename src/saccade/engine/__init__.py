"""Optimized inference: any model in a faster form with the same interface: quantization, KV cache, compiled operators."""

from saccade.engine.batching.request import RequestEvent, RequestHandle
from saccade.engine.batching.scheduler import BatchScheduler, QueueFull
from saccade.engine.kv_cache import KVCache
from saccade.engine.model import FastModel, fast
from saccade.engine.precision import PrecisionChoice, choose_precision
from saccade.engine.quantization_quality import QuantizationQuality, measure_quality

__all__ = [
    "BatchScheduler",
    "FastModel",
    "KVCache",
    "PrecisionChoice",
    "QuantizationQuality",
    "QueueFull",
    "RequestEvent",
    "RequestHandle",
    "choose_precision",
    "fast",
    "measure_quality",
]
