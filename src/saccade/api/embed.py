"""Sentence embeddings by the plain model or its optimized form: `saccade.embed(model, texts, engine="auto")`."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from torch import Tensor

from saccade.engine import FastModel, fast
from saccade.engine.precision import PRECISIONS
from saccade.errors import UsageError
from saccade.models import embed_texts
from saccade.models.model import Model
from saccade.suggest import suggest
from saccade.training.evaluate import ENGINE_OFF

ENGINES = ("auto", *PRECISIONS, ENGINE_OFF)
Weights = tuple[tuple[int, int], ...]  # address and version of each parameter

_fast_models: WeakKeyDictionary[Model, dict[str, tuple[Weights, FastModel]]] = WeakKeyDictionary()


def embed(model: Model, texts: Sequence[str], *, truncate: bool = True, engine: str = ENGINE_OFF) -> Tensor:
    """Return one sentence embedding per text, (texts, W), pooled as the model's files say; default: mean pooling.

    Args:
        model: A text encoder with its tokenizer, such as `saccade.load("all-MiniLM-L6-v2")`; or its optimized form, from
            `saccade.fast`.
        texts: A list of texts.
        truncate: Drop the tokens beyond the model's limit; False makes a text that is too long an error.
        engine: "off" runs the plain model; "auto", "int8", "bfloat16", "float16" or "float32" convert it on the first call for
            fast inference, and again when its weights have changed.
    """
    return embed_texts.embed(prepare_model(model, engine), texts, truncate=truncate)


def prepare_model(model: Model, engine: str) -> Model:
    """The model itself, or its optimized form, which is kept as long as the model lives."""
    if engine not in ENGINES:
        raise UsageError(f"engine is {engine!r}; {suggest(engine, list(ENGINES))}")
    if engine == ENGINE_OFF or isinstance(model, FastModel):
        return model
    weights = tuple((p.data_ptr(), p._version) for p in model.parameters())
    known = _fast_models.setdefault(model, {})
    if engine not in known or known[engine][0] != weights:
        known[engine] = (weights, fast(model, engine))
    return known[engine][1]
