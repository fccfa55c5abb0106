"""Worker process of one engine: `python -m benchmarks.encoding.baseline NAME MODEL ONNX_FOLDER TEXTS`.

A measurement encodes all texts repeatedly for some seconds, with the tokenizer and from precomputed token ids.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.encoding.export import FILES, INPUTS
from benchmarks.worker import Response, serve

THREADS = 2
Encode = tuple[Callable[[Sequence[str]], Any], Callable[[Any], Any]]  # texts -> ids, ids -> vectors


def ours(precision: str, model: Path) -> Encode:
    """saccade, through the public function's own two steps."""
    import torch

    import saccade
    from saccade.engine import fast

    torch.set_num_threads(THREADS)
    quick = fast(saccade.load(str(model)).eval(), precision)

    @torch.inference_mode()
    def encode(ids: Any) -> Any:
        return quick.embed_tokens(*ids)

    return quick.tokenizer.encode_ids, encode


def onnx_runtime(file: Path, model: Path) -> Encode:
    """ONNX Runtime, with the tokenizer called directly and the same pooling."""
    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.enable_padding()

    def prepare(texts: Sequence[str]) -> Any:
        found = tokenizer.encode_batch_fast(list(texts))
        columns = ([e.ids for e in found], [e.attention_mask for e in found], [e.type_ids for e in found])
        return {name: np.array(column, dtype=np.int64) for name, column in zip(INPUTS, columns, strict=True)}

    def encode(given: Any) -> Any:
        hidden, keep = session.run(None, given)[0], given["attention_mask"][..., None]
        pooled = (hidden * keep).sum(1) / keep.sum(1)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)

    return prepare, encode


def begin() -> tuple[Response, Callable[..., Response]]:
    name, model, folder, texts_file = sys.argv[1], *map(Path, sys.argv[2:])
    texts = json.loads(texts_file.read_text(encoding="utf-8"))
    library, _, precision = name.partition(" ")
    prepare, encode = ours(precision, model) if library == "saccade" else onnx_runtime(folder / FILES[name], model)
    vectors = [row for start in range(0, len(texts), 8) for row in encode(prepare(texts[start : start + 8]))]

    def work(batch_size: int, seconds: float) -> Response:
        batches = [texts[start : start + batch_size] for start in range(0, len(texts), batch_size)]
        ready = [prepare(batch) for batch in batches]
        for ids in ready[: max(1, 16 // batch_size)]:
            encode(ids)
        return {
            "with tokenizer": speed(lambda: [encode(prepare(batch)) for batch in batches], len(texts), seconds),
            "encoder alone": speed(lambda: [encode(ids) for ids in ready], len(texts), seconds),
        }

    return {"vectors": [[round(float(x), 6) for x in row] for row in vectors]}, work


def speed(work: Callable[[], object], texts: int, seconds: float) -> float:
    """Texts a second."""
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        work()
        count += texts
    return count / (time.perf_counter() - start)


if __name__ == "__main__":
    serve(begin)
