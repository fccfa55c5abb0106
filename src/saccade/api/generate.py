"""Text generation in Python, `saccade.generate("runs/tales", "Once upon")`: whole texts, or streamed pieces of text."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

from saccade.api.run import Run
from saccade.data import Batch
from saccade.decoding import generate_text as decoding_texts
from saccade.decoding.config import GenerationConfig
from saccade.decoding.generate_text import StopIds
from saccade.engine import fast
from saccade.errors import UsageError
from saccade.keywords import raise_for_unknown_keywords
from saccade.models.load import load
from saccade.models.model import Model
from saccade.setting_synonyms import GENERATION_SYNONYMS

DEFAULT_MAX_NEW_TOKENS = 100


class GenerationSettings(TypedDict, total=False):
    """The fields of `GenerationConfig` as keywords."""

    beams: int
    length_penalty: float
    coverage_penalty: float
    beam_groups: int
    diversity_penalty: float
    early_stopping: Literal["first", "heuristic", "exact"]
    n_best: int
    temperature: float | None
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    seed: int
    mbr_samples: int
    contrastive_alpha: float
    max_new_tokens: int | None
    min_new_tokens: int
    no_repeat_ngram_size: int
    repetition_penalty: float
    bad_words: Sequence[str]
    choices: Sequence[str]
    regex: str
    schema: Any
    stop: str | Sequence[str]
    draft_model: str
    prompt_lookup: bool


@overload
def generate(
    model: Model | Run | str | Path, prompt: str, *, stream: Literal[False] = False, engine: str = "off",
    decoding: GenerationConfig | None = None, **settings: Unpack[GenerationSettings],
) -> str: ...  # fmt: skip
@overload
def generate(
    model: Model | Run | str | Path, prompt: str, *, stream: Literal[True], engine: str = "off",
    decoding: GenerationConfig | None = None, **settings: Unpack[GenerationSettings],
) -> Iterator[str]: ...  # fmt: skip
@overload
def generate(
    model: Model | Run | str | Path, prompt: list[str] | tuple[str, ...], *, stream: Literal[False] = False,
    engine: str = "off", decoding: GenerationConfig | None = None, **settings: Unpack[GenerationSettings],
) -> list[str]: ...  # fmt: skip
@overload
def generate(
    model: Any, prompt: Batch, *args: Any, **settings: Any
) -> list[list[int]]: ...  # fmt: skip
def generate(
    model: Any,
    prompt: str | Sequence[str] | Batch,
    *args: Any,
    stream: bool = False,
    engine: str = "off",
    decoding: GenerationConfig | None = None,
    **settings: Any,
) -> str | list[str] | list[list[int]] | Iterator[str]:
    """Generate text from a prompt, or from each of several.

        saccade.generate("runs/tales", "Once upon", max_new_tokens=50, temperature=0.8, top_p=0.95, seed=1)
        for piece in saccade.generate(model, "Once upon", stream=True):
            print(piece, end="")

    A language model returns the prompt and its continuation, an encoder-decoder only the text that it generates; with a JSON
    schema both return only the JSON. The default is greedy decoding of at most 100 new tokens.

    Args:
        model: A model or a run, or the path or hub name of one.
        prompt: One text, or a list of texts. A `Batch` of token ids returns new ids; see `saccade.decoding.loop.generate`.
        stream: Yield pieces of text as they are generated; for a single prompt, with greedy decoding or sampling.
        engine: "off" runs the plain model; "auto", "int8", "bfloat16", "float16" or "float32" run the inference engine.
        decoding: A `GenerationConfig`; its fields can also be passed as keywords.
        **settings: Any field of `GenerationConfig`, such as max_new_tokens, temperature, top_p, beams, stop or seed.
    """
    if isinstance(prompt, Batch):
        return decoding_texts.generate(model, prompt, *args, decoding=decoding, **settings)
    opened = model.model if isinstance(model, Run) else load(model) if isinstance(model, str | Path) else model
    options: dict[str, Any] = {
        name: settings.pop(name) for name in ("stop_ids", "processors", "sampler") if name in settings
    }
    if args:
        options["sampler"], *_ = args
    config = make_generation_config(decoding, settings)
    if engine != "off":
        opened = fast(opened, engine)
    limit = config.max_new_tokens or DEFAULT_MAX_NEW_TOKENS
    if not stream:
        prompts = prompt if isinstance(prompt, str) else list(prompt)
        return decoding_texts.generate(opened, prompts, decoding=config, max_new_tokens=limit, **options)
    if not isinstance(prompt, str):
        raise UsageError(
            f"stream=True takes one prompt, a string; got {type(prompt).__name__}. Call generate once per prompt."
        )
    return decoding_texts.stream(opened, prompt, decoding=config, max_new_tokens=limit)


def make_generation_config(decoding: GenerationConfig | None, settings: dict[str, Any]) -> GenerationConfig:
    """Apply keywords to a generation config; an unknown keyword raises an error that names the nearest field.

    >>> make_generation_config(None, {"temperature": 0.8, "stop": "END"}).stop
    ('END',)
    """
    known = [item.name for item in fields(GenerationConfig)]
    raise_for_unknown_keywords("generate", settings, [*known, "stream", "engine", "decoding"], GENERATION_SYNONYMS)
    values = dict(settings)
    for name in ("stop", "bad_words", "choices"):
        if name in values:
            values[name] = (values[name],) if isinstance(values[name], str) else tuple(values[name])
    return replace(decoding or GenerationConfig(), **values).check()


__all__ = ["GenerationSettings", "StopIds", "generate", "make_generation_config"]
