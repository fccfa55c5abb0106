"""Special token ids for config.json and generation_config.json: where `transformers` has to begin, pad and stop to write what
we write.

What a published directory says there is kept and written again. Where it and the tokenizer disagree, the tokenizer is right,
because it is the tokenizer that our own models follow.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from saccade.models.io import model_dir
from saccade.models.model import Model

GENERATION_CONFIG_FILE = "generation_config.json"
TOKEN_ID_KEYS = (
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
)
DEFAULT_MAX_NEW_TOKENS = (
    512  # that an encoder-decoder without a limit of its own writes, the one it begins with included
)
MAX_SUPPRESSED_TOKENS = 4096  # ids without a token that are listed one by one


def read_token_ids(raw: Mapping[str, Any], vocab: int | None) -> dict[str, Any]:
    """The special token ids that a published config.json names and the model has a vector for.

    >>> read_token_ids({"eos_token_id": [2, 3], "bos_token_id": 50256, "pad_token_id": -1}, 368)
    {'eos_token_id': [2, 3]}
    """
    return {key: raw[key] for key in TOKEN_ID_KEYS if _are_token_ids(raw.get(key), vocab)}


def read_generation_config(directory: Path) -> dict[str, Any]:
    """What generation_config.json says; nothing where there is none."""
    path = directory / GENERATION_CONFIG_FILE
    if not path.exists():
        return {}
    return {key: value for key, value in model_dir.read_json(path).items() if key not in model_dir.CODE_KEYS}


def special_token_ids(model: Model) -> dict[str, Any]:
    """The special token ids for config.json: the tokenizer's, then those that the model came with; None where there is none."""
    found: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None} | model.special_token_ids
    if model.tokenizer is not None:
        source, target = model.tokenizer, model.tokenizer.target
        ends = source.eos_id if source.sep_id is None else source.sep_id
        known = {"bos_token_id": target.bos_id, "eos_token_id": target.eos_id, "pad_token_id": source.pad_id}
        known |= {} if is_autoregressive(model) else {"sep_token_id": ends}
        for key, id in known.items():
            if id is not None and not (isinstance(found.get(key), list) and id in found[key]):
                found[key] = id
    return found


def make_generation_config(model: Model, config: Mapping[str, Any]) -> dict[str, Any]:
    """generation_config.json for a model that writes, from its config.json and what it came with."""
    keys = (*TOKEN_ID_KEYS[:3], "decoder_start_token_id")
    ids = {key: config[key] for key in keys if config.get(key) is not None}
    stated = {key: value for key, value in model.generation_config.items() if key not in keys} | ids
    if config.get("is_encoder_decoder") and "max_length" not in stated:
        stated.setdefault("max_new_tokens", (asdict(model.config).get("max_positions") or DEFAULT_MAX_NEW_TOKENS) - 1)
    suppressed = _unnamed_ids(model)
    if suppressed:
        stated["suppress_tokens"] = sorted({*(stated.get("suppress_tokens") or ()), *suppressed})
    return stated


def is_autoregressive(model: Model) -> bool:
    """Whether a model generates text."""
    return model.capabilities.is_autoregressive


def _unnamed_ids(model: Model) -> range:
    """The ids that have a score and no token, which we never write."""
    if model.tokenizer is None:
        return range(0)
    found = range(model.tokenizer.target.vocab, model.autoregressive_body.head.score.out_features)
    return found if len(found) <= MAX_SUPPRESSED_TOKENS else range(0)


def _are_token_ids(value: Any, vocab: int | None) -> bool:
    """Whether this is an id, or a list of ids, of a vocabulary of this size."""
    ids = value if isinstance(value, list) and value else [value]
    return all(type(id) is int and id >= 0 and (vocab is None or id < vocab) for id in ids)
