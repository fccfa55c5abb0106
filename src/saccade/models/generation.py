"""Special token ids for config.json and generation_config.json: where `transformers` has to begin, pad and stop to write what
we write.

What a published directory says there is kept and written again. Where it and the tokenizer disagree, the tokenizer is right,
because it is the tokenizer that our own models follow.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from saccade.models import files
from saccade.models.model import Model

FILE = "generation_config.json"
TOKEN_IDS = (
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
)
MAX_NEW_TOKENS = 512  # that an encoder-decoder without a limit of its own writes, the one it begins with included
MAX_SUPPRESSED = 4096  # ids without a token that are listed one by one


def read_token_ids(raw: Mapping[str, Any], vocab: int | None) -> dict[str, Any]:
    """The special token ids that a published config.json names and the model has a vector for.

    >>> read_token_ids({"eos_token_id": [2, 3], "bos_token_id": 50256, "pad_token_id": -1}, 368)
    {'eos_token_id': [2, 3]}
    """
    return {key: raw[key] for key in TOKEN_IDS if _are_ids(raw.get(key), vocab)}


def read_generation(directory: Path) -> dict[str, Any]:
    """What generation_config.json says; nothing where there is none."""
    path = directory / FILE
    if not path.exists():
        return {}
    return {key: value for key, value in files.read_json(path).items() if key not in files.NAMES_CODE}


def token_ids(model: Model) -> dict[str, Any]:
    """The special token ids for config.json: the tokenizer's, then those that the model came with; None where there is none."""
    found: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None} | model.token_ids
    if model.tokenizer is not None:
        source, target = model.tokenizer, model.tokenizer.target
        ends = source.end if source.separator is None else source.separator
        known = {"bos_token_id": target.begin, "eos_token_id": target.end, "pad_token_id": source.pad}
        known |= {} if writes(model) else {"sep_token_id": ends}
        for key, id in known.items():
            if id is not None and not (isinstance(found.get(key), list) and id in found[key]):
                found[key] = id
    return found


def write_generation(model: Model, config: Mapping[str, Any]) -> dict[str, Any]:
    """generation_config.json for a model that writes, from its config.json and what it came with."""
    keys = (*TOKEN_IDS[:3], "decoder_start_token_id")
    ids = {key: config[key] for key in keys if config.get(key) is not None}
    stated = {key: value for key, value in model.generation.items() if key not in keys} | ids
    if config.get("is_encoder_decoder") and "max_length" not in stated:
        stated.setdefault("max_new_tokens", (asdict(model.config).get("length") or MAX_NEW_TOKENS) - 1)
    suppressed = _nameless(model)
    if suppressed:
        stated["suppress_tokens"] = sorted({*(stated.get("suppress_tokens") or ()), *suppressed})
    return stated


def writes(model: Model) -> bool:
    """Whether a model generates text."""
    return model.capabilities.autoregressive


def _nameless(model: Model) -> range:
    """The ids that have a score and no token, which we never write."""
    if model.tokenizer is None:
        return range(0)
    found = range(model.tokenizer.target.vocab, model.autoregressive.head.score.out_features)
    return found if len(found) <= MAX_SUPPRESSED else range(0)


def _are_ids(value: Any, vocab: int | None) -> bool:
    """Whether this is an id, or a list of ids, of a vocabulary of this size."""
    ids = value if isinstance(value, list) and value else [value]
    return all(type(id) is int and id >= 0 and (vocab is None or id < vocab) for id in ids)
