"""Hostile configs: numbers that no model has, values of the wrong kind, code that asks to be run, JSON that is none."""

from typing import Any

from hostile.case import Case, case, change, directory, fifo, link, put, put_json

FILE = "config.json"
SIZES = {  # BERT's keys, and our word for each
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "vocab_size": "vocab",
    "intermediate_size": "ffn_width",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "segments",
}
NUMBERS: dict[str, Any] = {
    "a billion": 10**9,
    "10**30": 10**30,
    "10**400": 10**400,
    "negative": -1,
    "zero": 0,
    "a word": "many",
    "digits as text": "12",
    "a fraction": 1.5,
    "null": None,
    "a list": [12],
    "an object": {"a": 12},
    "true": True,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "2**31 - 1": 2**31 - 1,
}
FAMILIES: dict[str, dict[str, tuple[Any, str]]] = {  # published keys, each with a value and the word of its refusal
    "bert": {
        "layer_norm_eps": ("x", "eps"),
        "hidden_dropout_prob": (-1, "dropout"),
        "attention_probs_dropout_prob": (7.5, "attention_dropout"),
        "hidden_act": ("__import__('os').system('x')", "activation"),
    },
    "roberta": {
        "pad_token_id": (10**9, "padding"),
        "max_position_embeddings": (1, "max_positions"),
        "vocab_size": (0, "ids"),
    },
    "distilbert": {"dim": (0, "width"), "n_heads": (10**6, "heads"), "n_layers": (10**6, "layers")},
    "electra": {
        "embedding_size": (10**9, "embedding_width"),
        "hidden_size": (0, "width"),
        "is_decoder": (True, "is_decoder"),
    },
    "longformer": {
        "attention_window": (0, "window"),
        "num_hidden_layers": (10**9, "layers"),
        "hidden_size": ("12", "width"),
    },
    "big_bird": {
        "block_size": (0, "block"),
        "num_random_blocks": (10**9, "random_blocks"),
        "attention_type": (["block_sparse"], "attention_type"),
    },
    "gpt2": {
        "n_embd": (10**9, "width"),
        "n_head": (0, "heads"),
        "n_layer": (10**9, "layers"),
        "n_positions": (-1, "max_positions"),
        "n_inner": (0, "ffn_width"),
    },
    "llama": {
        "num_key_value_heads": (7, "key heads"),
        "head_dim": (10**9, "head_width"),
        "rope_theta": ("x", "rope_base"),
        "rope_scaling": ([1], "rotary"),
        "hidden_act": ([], "hidden_act"),
    },
    "mistral": {"sliding_window": (0, "sliding_window"), "num_key_value_heads": (7, "key heads")},
    "qwen2": {
        "layer_types": (5, "layer_types"),
        "head_dim": ("x", "head_width"),
        "use_sliding_window": (1.5, "sliding"),
    },
    "qwen3": {
        "layer_types": ([{}], "layer_types"),
        "head_dim": (0, "head_width"),
        "attention_bias": ({}, "attention_bias"),
    },
    "gpt_neox": {
        "rotary_pct": ("x", "rotary_fraction"),
        "rotary_emb_base": ("x", "rope_base"),
        "rope_parameters": ([1], "rotary"),
        "hidden_act": ([], "activation"),
        "use_parallel_residual": ("yes", "parallel_residual"),
        "hidden_dropout": (7.0, "dropout"),
    },
    "gemma3_text": {
        "layer_types": ({"a": 1}, "layer_types"),
        "num_hidden_layers": ("x", "layers"),
        "sliding_window": (None, "sliding_window"),
        "sliding_window_pattern": (0, "full_attention_every"),
        "rope_parameters": ({"full_attention": 3}, "rotary"),
        "query_pre_attn_scalar": (0, "attention_scale_width"),
        "final_logit_softcapping": (30.0, "final_logit_softcapping"),
    },
    "t5": {
        "relative_attention_num_buckets": (0, "relative_buckets"),
        "relative_attention_max_distance": (0, "max_relative_distance"),
        "num_decoder_layers": (10**9, "decoder_layers"),
        "d_kv": (10**9, "head_width"),
        "feed_forward_proj": ("gated-evil", "evil"),
        "num_heads": (10**9, "heads"),
    },
    "bart": {
        "encoder_attention_heads": (0, "heads"),
        "decoder_layers": (10**9, "decoder_layers"),
        "decoder_ffn_dim": (10**9, "decoder_ffn_width"),
        "activation_function": ({}, "activation"),
    },
    "marian": {
        "decoder_vocab_size": (10**9, "target_vocab"),
        "d_model": (10**6, "width"),
        "decoder_attention_heads": (-1, "decoder_heads"),
    },
    "vit": {
        "patch_size": (0, "patch_size"),
        "image_size": (10**9, "image_height"),
        "num_channels": (0, "channels"),
        "num_hidden_layers": (10**9, "layers"),
        "hidden_act": (None, "hidden_act"),
    },
}
OURS: dict[str, dict[str, Any]] = {  # families without a published form, in ours
    "senet": {"stages": 10**9, "blocks_per_stage": 10**9, "se_reduction": 0, "block_type": "evil"},
    "linformer": {"rank": 0, "max_positions": 10**9},
    "reformer": {"hash_buckets": 0, "hash_rounds": 10**9, "max_bucket_distance": -1},
    "captioner_rnn": {"cell_size": 0, "image_size": 10**9, "block_type": ["plain"]},
    "dalle": {"codebook_size": 10**9, "cell_size": 0, "quantizer": "evil", "code_width": -3},
    "transformer": {"mechanism": "os.system", "position": "../learned", "layers": 10**9, "heads": 0},
    "rnn": {"cell": "eval", "decoder": "", "mechanism": [], "layers": 0},
}
PAIRS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "heads that do not divide the width": ({"num_attention_heads": 7}, ("7 heads", "width")),
    "more layers than tensors": ({"num_hidden_layers": 512}, ("layers", "tensors")),
    "more words than there are": ({"vocab_size": 2_000_000}, ("match",)),
    "every size at its largest": ({key: 10_000 if "size" in key else 500 for key in SIZES}, ("layers", "tensors")),
    "a decoder": ({"is_decoder": True}, ("is_decoder",)),
    "a decoder in words": ({"is_decoder": "no"}, ("is_decoder",)),
    "attention across": ({"add_cross_attention": True}, ("add_cross_attention",)),
    "another kind of position": ({"position_embedding_type": "relative_key"}, ("position_embedding_type",)),
    "an activation in a list": ({"hidden_act": ["gelu"]}, ("activation",)),
    "an activation of a megabyte": ({"hidden_act": "x" * 2**20}, ("activation",)),
    "an activation that is a path": ({"hidden_act": "/etc/passwd"}, ("activation",)),
    "another family": ({"model_type": "gpt2"}, ("missing",)),
    "a family of numbers": ({"model_type": 3}, ("model_type",)),
    "a family that is a module": ({"model_type": "os.system"}, ("family", "os.system")),
    "a family that is a path": ({"model_type": "../bert"}, ("family",)),
    "a family of a megabyte": ({"model_type": "b" * 2**20}, ("family",)),
    "a family in a list": ({"model_type": ["bert"]}, ("model_type",)),
    "a family with an escape": ({"model_type": "\x1b]0;owned\x07"}, ("family",)),
    "a family of ours that has no published form": ({"model_type": "linformer"}, ("linformer", "published")),
}
TEXTS: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "empty": ("", ("not json",)),
    "a brace": ("{", ("not json",)),
    "a list": ("[]", ("object",)),
    "null": ("null", ("object",)),
    "a number": ("7", ("object",)),
    "a string": ('"x"', ("object",)),
    "an empty object": ("{}", ("model_type",)),
    "NaN alone": ("NaN", ("object",)),
    "10,000 lists deep": ('{"a":' + "[" * 10_000 + "]" * 10_000 + "}", ("deep",)),
    "100,000 objects deep": ('{"a":' * 100_000 + "1" + "}" * 100_000, ("deep",)),
    "a byte order mark": ("\ufeff{}", ("bom",)),
    "UTF-16": ('{"model_type": "bert"}'.encode("utf-16"), ("utf-8",)),
    "Latin-1": (b'{"a": "\xe9"}', ("utf-8",)),
    "half a character in bytes": (b'{"model_type": "\xed\xa0\x80"}', ("utf-8",)),
    "a NUL in it": ('{"model_type": "bert\0"}', ("not json",)),
    "NULs": (b"\0" * 4096, ("not json",)),
    "a pickle": (b"\x80\x02}q\0.", ("utf-8",)),
    "YAML that builds objects": ("!!python/object/apply:os.system ['x']", ("not json",)),
    "Python": ("__import__('os').system('x')", ("not json",)),
    "a comment": ('{"model_type": "bert"} // x', ("not json",)),
    "a key twice": ('{"model_type": "bert", "model_type": "gpt2"}', ("model_type", "twice")),
    "a size twice": ('{"model_type": "bert", "hidden_size": 12, "hidden_size": 16000}', ("hidden_size", "twice")),
    "a number of 5,000 digits": ('{"model_type": "bert", "hidden_size": ' + "9" * 5_000 + "}", ("digits",)),
    "a fraction of great power": ('{"model_type": "bert", "hidden_size": 1e400}', ("width",)),
    "20 MB": ('{"a": "' + "x" * 20 * 2**20 + '"}', ("bytes",)),
    "100 MB": (b" " * 100 * 2**20, ("bytes",)),
    "ours, misspelt": ('{"saccade": {"family": "bert", "wdith": 3}}', ("wdith", "width")),
    "ours, empty": ('{"saccade": {}}', ("family",)),
    "ours, a list of families": ('{"saccade": {"family": ["bert"]}}', ("family",)),
    "ours, a list": ('{"saccade": [], "model_type": "nothing"}', ("nothing",)),
    "ours, hooks": ('{"saccade": {"family": "bert", "__class__": "x"}}', ("__class__",)),
}
CODE: dict[str, dict[str, Any]] = {
    "auto_map": {"auto_map": {"AutoModel": "evil.Model"}},
    "auto_map of another's": {"auto_map": {"AutoModel": "someone/else--evil.Model"}},
    "trust_remote_code": {"trust_remote_code": True},
    "custom_pipelines": {"custom_pipelines": {"label": {"impl": "evil.Pipeline", "pt": ["AutoModel"]}}},
    "_target_": {"_target_": "os.system", "command": "touch ran"},
    "auto_map inside": {"text_config": {"auto_map": {"AutoConfig": "evil.Config"}}},
}


def _sizes() -> list[Case]:
    """Every size of BERT with every number that is none."""
    made = []
    for key, ours in SIZES.items():
        for name, value in NUMBERS.items():
            few = key in ("hidden_size", "vocab_size", "num_hidden_layers")
            if few or name in ("a billion", "negative", "zero", "a word", "null"):
                made.append(case(f"{key} is {name}", change(FILE, **{key: value}), FILE, ours))
    return made


CASES = [
    *_sizes(),
    *(case(name, change(FILE, **fields), *says) for name, (fields, says) in PAIRS.items()),
    *(case(f"config is {name}", put(FILE, text), FILE, *says) for name, (text, says) in TEXTS.items()),
    *(
        case(f"{family}: {key} = {str(value)[:20]}", put_json(FILE, {"model_type": family, key: value}), FILE, says)
        for family, fields in FAMILIES.items()
        for key, (value, says) in fields.items()
    ),
    *(
        case(
            f"{family}: {key} = {str(value)[:20]}",
            put_json(FILE, {"saccade": {"family": family, key: value}}),
            FILE,
            key,
        )
        for family, fields in OURS.items()
        for key, value in fields.items()
    ),
    *(
        case(f"code: {name}", change(FILE, **fields), "ignored", name.split()[0], loads=True)
        for name, fields in CODE.items()
    ),
    case("config is a directory", directory(FILE), FILE, "regular"),
    case("config is a pipe", fifo(FILE), FILE, "regular"),
    case("config leads out", link(FILE, "../outside.json"), FILE, "leads out"),
    case("config leads to a device", link(FILE, "/dev/zero"), FILE, "leads out"),
    case("config leads to memory", link(FILE, "/proc/self/mem"), FILE, "leads out"),
    case("config leads to itself", link(FILE, FILE), FILE),
    case("config leads to nowhere", link(FILE, "nowhere"), FILE),
]
