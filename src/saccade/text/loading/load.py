"""Loads tokenizers from a Hugging Face directory, a single file, or llama2.c's tokenizer.bin."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Built
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from saccade.errors import ModelError
from saccade.text.backends.hf_tokenizers import HFBackend
from saccade.text.backends.sentencepiece_model import SentencePieceBackend, SentencePieceModel, open_sentencepiece
from saccade.text.backends.sentencepiece_proto import llama2c_to_sentencepiece
from saccade.text.loading.safe_files import abbreviate, as_model_error, read_bytes, read_json, read_text, resolve_inside
from saccade.text.loading.tokenizer_dir import TokenizerFiles, read_tokenizer_files
from saccade.text.loading.validate_tokenizer_json import MAX_MERGES, check_merges, check_vocab
from saccade.text.special_tokens import ROLE_TOKENS, TEMPLATES, SpecialTokenTemplate
from saccade.text.tokenizer import Tokenizer


def load_tokenizer(tokenizer_path: str | Path) -> Tokenizer:
    """Load a tokenizer from a directory or a single file.

    The first entry of `LOADERS` whose files all exist is used. Nothing is downloaded and no code of the directory is run; code
    that it names is listed in the tokenizer's `notes`.
    """
    path = Path(tokenizer_path)
    if path.is_file():
        folder = TokenizerFiles(path.parent, {}, {}, [], {})
        for names, reader in LOADERS:
            if len(names) == 1 and path.match(names[0]):
                return reader(folder, path)
        raise ModelError(f"{path} is not a known tokenizer file; supported are {_list_known_files(single=True)}.")
    if not path.is_dir():
        raise ModelError(f"{path} does not exist; a directory with tokenizer files is needed.")
    for names, reader in LOADERS:
        matches = [sorted(path.glob(name)) for name in names]
        if all(matches):
            for files in matches:
                resolve_inside(files[0], path)
            folder = read_tokenizer_files(path)
            if not (reader is _load_json and folder.has_sentencepiece):
                return reader(folder, *(files[0] for files in matches))
    listing = ", ".join(sorted(file.name for file in path.iterdir())[:10]) or "nothing"
    raise ModelError(f"{path} has no tokenizer files; it contains {listing}. Supported are {_list_known_files()}.")


def load_llama2c_tokenizer(path: str | Path) -> Tokenizer:
    """Load llama2.c's tokenizer file: pieces with scores, and byte fallback."""
    path = Path(path)
    model = llama2c_to_sentencepiece(read_bytes(path), str(path))
    folder = TokenizerFiles(path.parent, {"tokenizer_class": "LlamaTokenizer"}, {}, [], {})
    return _build_from_sentencepiece(folder, model, "tokenizer.model", str(path))


def _load_json(folder: TokenizerFiles, path: Path) -> Tokenizer:
    spec = read_json(path)
    backend = HFBackend(spec, str(path), folder.special_tokens)
    truncation = spec.get("truncation")
    max_tokens = truncation.get("max_length") if isinstance(truncation, dict) else None
    max_tokens = folder.max_tokens or (max_tokens if isinstance(max_tokens, int) and max_tokens > 0 else None)
    roles = folder.find_role_ids(backend.special_tokens)
    return Tokenizer(
        backend, roles, max_tokens=max_tokens, notes=folder.collect_notes(roles), passthrough=folder.passthrough
    )


def _load_wordpiece(folder: TokenizerFiles, path: Path) -> Tokenizer:
    """Load BERT's vocab.txt, one token per line."""
    content = read_text(path)
    if "\0" in content:
        raise ModelError(f"{path} has a NUL at character {content.index(chr(0)):,}; a vocabulary must be text.")
    lines = re.sub(r"\r\n?", "\n", content).removesuffix("\n").split("\n")
    tokenizer = Built(models.WordPiece({}, unk_token=folder.role_tokens.get("unk", "[UNK]")))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(folder.config.get("tokenize_chinese_chars", True)),
        strip_accents=folder.config.get("strip_accents"),
        lowercase=bool(folder.config.get("do_lower_case", True)),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    model = {"vocab": {token: id for id, token in enumerate(lines)}}
    return _build_from_vocab(folder, path, tokenizer, model, folder.choose_template("bert"))


def _load_bpe(folder: TokenizerFiles, path: Path, merges_path: Path) -> Tokenizer:
    """Load byte-level BPE: GPT-2, RoBERTa, BART; the latter two have <s> in their vocabulary."""
    vocab = read_json(path)
    check_vocab(vocab, str(path))
    content = read_text(merges_path)
    if content.count("\n") > MAX_MERGES + 1:
        raise ModelError(f"{merges_path} has {content.count(chr(10)):,} lines; the maximum is {MAX_MERGES:,} merges.")
    merges = [line.rstrip("\r").split(" ") for line in content.split("\n") if line.strip() and line[:8] != "#version"]
    check_merges(merges, str(merges_path))
    template = folder.choose_template("roberta" if {"<s>", "</s>"} <= vocab.keys() else "none")
    if template == TEMPLATES["roberta"]:  # bos and eos also serve as cls and sep
        folder = replace(folder, role_tokens={"cls": "<s>", "sep": "</s>"} | folder.role_tokens)
    tokenizer = Built(models.BPE({}, [], continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False))
    add_prefix_space = bool(folder.config.get("add_prefix_space", False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    model = {"vocab": vocab, "merges": merges}
    return _build_from_vocab(folder, path, tokenizer, model, template)


def _build_from_vocab(
    folder: TokenizerFiles, path: Path, tokenizer: Built, model: dict[str, Any], template: SpecialTokenTemplate
) -> Tokenizer:
    """Add a vocabulary, its special tokens and the special-token template to an empty tokenizer."""
    special = {name: model["vocab"][name] for name in folder.find_special_tokens(model["vocab"])}
    roles = folder.find_role_ids(special)
    missing = sorted(template.list_required_roles() - roles.keys())
    if missing:
        descriptions = [
            f"{role} ({abbreviate(folder.role_tokens[role])})" if role in folder.role_tokens else role
            for role in missing
        ]
        raise ModelError(f"{path}: the special tokens {', '.join(descriptions)} are needed, but not in the vocabulary.")
    names = {
        role: next(name for name in special if special[name] == roles[role]) for role in template.list_required_roles()
    }
    special_ids = {role: (names[role], roles[role]) for role in template.list_required_roles()}
    with as_model_error(f"{path} cannot be read"):
        if template == TEMPLATES["roberta"]:  # also excludes the space before a word from its offsets
            space = bool(folder.config.get("add_prefix_space", False))
            tokenizer.post_processor = processors.RobertaProcessing(special_ids["eos"], special_ids["bos"], True, space)
        elif special_ids:
            single, pair = template.to_hf_template(names)
            tokenizer.post_processor = processors.TemplateProcessing(single, pair, sorted(set(special_ids.values())))
    spec = json.loads(tokenizer.to_str())
    spec["model"] |= model
    spec["added_tokens"] = [
        _make_added_token(name, id) for name, id in sorted(special.items(), key=lambda pair: pair[1])
    ]
    backend = HFBackend(spec, str(path), folder.special_tokens)
    roles = folder.find_role_ids(backend.special_tokens)
    return Tokenizer(
        backend, roles, max_tokens=folder.max_tokens, notes=folder.collect_notes(roles), passthrough=folder.passthrough
    )


def _make_added_token(name: str, id: int) -> dict[str, Any]:
    """A special token as an entry of tokenizer.json; <mask> absorbs the space before it, as in the published files."""
    plain = {"single_word": False, "lstrip": name == "<mask>", "rstrip": False, "normalized": False, "special": True}
    return {"id": id, "content": name, **plain}


def _refuse_fairseq(folder: TokenizerFiles, path: Path) -> Tokenizer:
    """Raise ModelError for XLM-RoBERTa's and CamemBERT's files, whose token ids differ from those in the model file."""
    raise ModelError(
        f"{path}: the token ids are defined by a class of transformers, not by this file. Create a tokenizer.json: "
        f"transformers.AutoTokenizer.from_pretrained({str(path.parent)!r}).save_pretrained(NEW)."
    )


def _load_sentencepiece(folder: TokenizerFiles, path: Path) -> Tokenizer:
    return _build_from_sentencepiece(folder, read_bytes(path), path.name, str(path))


def _build_from_sentencepiece(folder: TokenizerFiles, model: bytes, name: str, where: str) -> Tokenizer:
    """Build from a SentencePiece model; without `tokenizer_class`, a model with bos is LLaMA's, others are T5's or Marian's."""
    processor = open_sentencepiece(model, where)
    default = "llama" if processor.bos_id() >= 0 else "marian" if name.endswith(".spm") else "t5"
    template = folder.choose_template(default)
    added = {token: id for token, id in folder.added_tokens.items() if id >= len(processor)}
    is_t5 = template == TEMPLATES["t5"] and folder.tokenizer_class in ("T5Tokenizer", None) and name == "spiece.model"
    if is_t5 and not any(token.startswith("<extra_id_") for token in added):
        count = folder.config.get("extra_ids", 100)
        if type(count) is not int or not 0 <= count <= 10_000:
            raise ModelError(f"{where}: extra_ids is {count!r} in tokenizer_config.json; expected 0 to 10,000.")
        added |= {f"<extra_id_{i}>": len(processor) + count - 1 - i for i in range(count)}
    classes = {
        TEMPLATES["t5"]: "T5Tokenizer",
        TEMPLATES["marian"]: "T5Tokenizer",
        TEMPLATES["bert"]: "BigBirdTokenizer",
    }
    config = {"tokenizer_class": folder.tokenizer_class or classes.get(template, "LlamaTokenizer")}
    config |= {
        key: folder.config[key] for key in ("add_bos_token", "add_eos_token", "extra_ids") if key in folder.config
    }
    source = SentencePieceModel(processor, where, config=config, files={name: model})
    backend = SentencePieceBackend(source, template, _find_role_tokens(folder, processor, added), added)
    roles = {role: backend.special_tokens[token] for role, token in backend.role_tokens.items()}
    return Tokenizer(
        backend, roles, max_tokens=folder.max_tokens, notes=folder.collect_notes(roles), passthrough=folder.passthrough
    )


def _find_role_tokens(folder: TokenizerFiles, processor: Any, added_tokens: dict[str, int]) -> dict[str, str]:
    """role -> token: from the config files, then from the SentencePiece model, then by usual names."""
    ids = {
        "bos": processor.bos_id(),
        "eos": processor.eos_id(),
        "pad": processor.pad_id(),
        "unk": processor.unk_id(),
    }
    defaults = {role: processor.id_to_piece(id) for role, id in ids.items() if id >= 0}
    for role in ("mask", "sep", "cls", "pad"):
        for name in ROLE_TOKENS[role]:
            if name in added_tokens or processor.piece_to_id(name) != processor.unk_id():
                defaults.setdefault(role, name)
    stated = {
        role: name for role, name in folder.role_tokens.items() if name in added_tokens or _has_piece(processor, name)
    }
    return defaults | stated


def _has_piece(processor: Any, name: str) -> bool:
    return processor.id_to_piece(processor.piece_to_id(name)) == name


def _load_marian(folder: TokenizerFiles, source: Path, target: Path, vocab_path: Path) -> Tokenizer:
    """Load Marian's two SentencePiece models, with one vocabulary or, if `separate_vocabs`, with two."""
    paths = [source, target, vocab_path]
    vocab = target_vocab = read_json(vocab_path)
    if folder.config.get("separate_vocabs"):
        paths.append(source.parent / "target_vocab.json")
        resolve_inside(paths[-1], source.parent)
        target_vocab = read_json(paths[-1])
    keys = ("source_lang", "target_lang", "separate_vocabs")
    config = {"tokenizer_class": "MarianTokenizer"} | {key: folder.config[key] for key in keys if key in folder.config}
    files = {path.name: read_bytes(path) for path in paths}
    names = {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"} | folder.role_tokens
    tokenizers: list[Tokenizer] = []
    for path, lookup in ((target, target_vocab), (source, vocab)):
        check_vocab(lookup, str(vocab_path))
        model = SentencePieceModel(open_sentencepiece(files[path.name], str(path)), str(path), lookup, config, files)
        language_codes = {token: id for token, id in lookup.items() if re.fullmatch(r">>.+<<", token)}
        backend = SentencePieceBackend(model, TEMPLATES["marian"], names, language_codes)
        roles = {role: backend.special_tokens[token] for role, token in backend.role_tokens.items()}
        tokenizers.append(
            Tokenizer(
                backend,
                roles,
                max_tokens=folder.max_tokens,
                target=tokenizers[0] if tokenizers else None,
                notes=folder.notes,
                passthrough=folder.passthrough,
            )
        )
    return tokenizers[1]


def _list_known_files(*, single: bool = False) -> str:
    return ", ".join(" + ".join(names) for names, _ in LOADERS if len(names) == 1 or not single)


LOADERS: list[tuple[tuple[str, ...], Callable[..., Tokenizer]]] = [
    (("tokenizer.json",), _load_json),
    (("source.spm", "target.spm", "vocab.json"), _load_marian),
    (("vocab.json", "merges.txt"), _load_bpe),
    (("encoder.json", "vocab.bpe"), _load_bpe),
    (("vocab.txt",), _load_wordpiece),
    (("spiece.model",), _load_sentencepiece),
    (("sentencepiece.bpe.model",), _refuse_fairseq),
    (("*.model",), _load_sentencepiece),
    (("*.spm",), _load_sentencepiece),
]
