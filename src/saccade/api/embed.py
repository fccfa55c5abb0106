"""Sentence embeddings in Python, `saccade.embed("minilm", texts)`: one vector for each text, by the fast engine."""

from collections.abc import Iterable
from pathlib import Path
from weakref import WeakKeyDictionary

from torch import Tensor

from saccade.api.run import PREDICTION_ENGINES, Run
from saccade.engine import FastModel, fast
from saccade.errors import UsageError
from saccade.keywords import check_keywords
from saccade.models import embed_texts
from saccade.models.model import Model
from saccade.progress import ProgressBar
from saccade.suggest import suggest
from saccade.training.evaluate import ENGINE_OFF

EXACT_PRECISION = "float32"  # its vectors equal those of the plain model within 1e-4; MiniLM's within 3e-7
MIN_TEXTS_TO_CONVERT = 32  # fewer texts are embedded before a model is converted for the fast engine
WeightVersions = tuple[tuple[int, int], ...]  # address and version of each parameter

_fast_models: WeakKeyDictionary[Model, dict[str, tuple[WeightVersions, FastModel]]] = WeakKeyDictionary()


@check_keywords
def embed(
    model: Model | Run | str | Path,
    texts: str | Iterable[str],
    *,
    batch_size: int | None = None,
    engine: str = "auto",
    device: str = "cpu",
    truncate: bool = True,
    progress: bool = True,
) -> Tensor:
    """Sentence embeddings, (texts, width), pooled and normalized as the files of the model say; default: mean pooling.

        vectors = saccade.embed("minilm", ["A man sleeps.", "Somebody rests."])

    The files of sentence-transformers may also set the maximum length, lowercasing, and a prompt that is put before each text.

    Args:
        model: A model or a run, or the path or hub name of one.
        texts: The texts. A single string is one text, whose vector (width,) is returned.
        batch_size: Batch size in texts, sorted by length. Default: as many texts as fit in 8,192 tokens.
        engine: "auto" runs optimized inference in float32, whose vectors equal those of the plain model within 1e-4; "int8",
            "bfloat16" and "float16" are less exact; "off" runs the plain model.
        device: Device of inference: cpu, cuda, mps or auto.
        truncate: Drop the tokens beyond the maximum length; if False, a text that is too long is an error.
        progress: Show a progress bar if it takes longer than two seconds.
    """
    if batch_size is not None and batch_size < 1:
        raise UsageError(f"batch_size is {batch_size}; it must be at least 1.")
    listed = [texts] if isinstance(texts, str) else list(texts)
    prepared = _prepare_model(model, engine, device, len(listed))
    with ProgressBar(enabled=progress) as bar:
        vectors = embed_texts.embed(prepared, listed, truncate=truncate, batch_size=batch_size, on_progress=bar.update)
    return vectors[0] if isinstance(texts, str) else vectors


def _prepare_model(model: Model | Run | str | Path, engine: str, device: str, count: int) -> Model:
    """The model on the engine; with "auto", the plain one for a few texts, as its conversion would take longer than they do."""
    if engine not in PREDICTION_ENGINES:
        raise UsageError(f"engine is {engine!r}; {suggest(engine, list(PREDICTION_ENGINES))}")
    if engine == "auto":
        engine = EXACT_PRECISION if count >= MIN_TEXTS_TO_CONVERT and device == "cpu" else ENGINE_OFF
    if not isinstance(model, Model):
        run = model if isinstance(model, Run) else Run(model)
        return run.prepare_model(engine, device)
    if device != "cpu":
        run = Run(".")
        run.model = model
        return run.prepare_model(engine, device)
    return model if engine == ENGINE_OFF or isinstance(model, FastModel) else convert_model(model, engine)


def convert_model(model: Model, engine: str) -> FastModel:
    """The optimized form of a model, which is kept as long as the model lives and its weights stay the same."""
    versions = tuple((p.data_ptr(), p._version) for p in model.parameters())
    known = _fast_models.setdefault(model, {})
    if engine not in known or known[engine][0] != versions:
        known[engine] = (versions, fast(model, engine))
    return known[engine][1]
