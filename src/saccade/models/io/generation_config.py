"""Special token ids and generation settings for config.json and generation_config.json, so that `transformers` generates the
same text.

Settings of a published directory are kept and saved again. If they disagree with the tokenizer, the tokenizer takes precedence,
as in saccade's own generation.
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
DEFAULT_MAX_NEW_TOKENS = 512  # of an encoder-decoder without a maximum length; includes the start token
MAX_SUPPRESSED_TOKENS = 4096  # ids without a token; more are not listed


def read_token_ids(raw: Mapping[str, Any], vocab: int | None) -> dict[str, Any]:
    """The special token ids in a published config.json that are valid for the vocabulary size.

    >>> read_token_ids({"eos_token_id": [2, 3], "bos_token_id": 50256, "pad_token_id": -1}, 368)
    {'eos_token_id': [2, 3]}
    """
    return {key: raw[key] for key in TOKEN_ID_KEYS if _are_token_ids(raw.get(key), vocab)}


def read_generation_config(directory: Path) -> dict[str, Any]:
    """The content of generation_config.json; empty if there is none."""
    path = directory / GENERATION_CONFIG_FILE
    if not path.exists():
        return {}
    return {key: value for key, value in model_dir.read_json(path).items() if key not in model_dir.CODE_KEYS}


def special_token_ids(model: Model) -> dict[str, Any]:
    """The special token ids for config.json: the tokenizer's, then those of the published config; None if unknown."""
    ids: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None} | model.special_token_ids
    if model.tokenizer is not None:
        source, target = model.tokenizer, model.tokenizer.target
        end_id = source.eos_id if source.sep_id is None else source.sep_id
        tokenizer_ids = {"bos_token_id": target.bos_id, "eos_token_id": target.eos_id, "pad_token_id": source.pad_id}
        tokenizer_ids |= {} if is_autoregressive(model) else {"sep_token_id": end_id}
        for key, id in tokenizer_ids.items():
            if id is not None and not (isinstance(ids.get(key), list) and id in ids[key]):
                ids[key] = id
    return ids


def make_generation_config(model: Model, config: Mapping[str, Any]) -> dict[str, Any]:
    """The content of generation_config.json, from config.json and the published generation_config.json."""
    keys = (*TOKEN_ID_KEYS[:3], "decoder_start_token_id")
    ids = {key: config[key] for key in keys if config.get(key) is not None}
    settings = {key: value for key, value in model.generation_config.items() if key not in keys} | ids
    if config.get("is_encoder_decoder") and "max_length" not in settings:
        settings.setdefault("max_new_tokens", (asdict(model.config).get("max_positions") or DEFAULT_MAX_NEW_TOKENS) - 1)
    suppressed = _unnamed_ids(model)
    if suppressed:
        settings["suppress_tokens"] = sorted({*(settings.get("suppress_tokens") or ()), *suppressed})
    return settings


def is_autoregressive(model: Model) -> bool:
    """Whether a model generates text."""
    return model.capabilities.is_autoregressive


def _unnamed_ids(model: Model) -> range:
    """The ids that have a logit but no token, which saccade never generates."""
    if model.tokenizer is None:
        return range(0)
    ids = range(model.tokenizer.target.vocab, model.autoregressive_body.head.score.out_features)
    return ids if len(ids) <= MAX_SUPPRESSED_TOKENS else range(0)


def _are_token_ids(value: Any, vocab: int | None) -> bool:
    """Whether this is an id, or a list of ids, of a vocabulary of this size."""
    ids = value if isinstance(value, list) and value else [value]
    return all(type(id) is int and id >= 0 and (vocab is None or id < vocab) for id in ids)
