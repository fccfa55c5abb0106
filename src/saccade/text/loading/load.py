"""Tokenizers from files: a Hugging Face directory, one file, or llama2.c's list of pieces."""

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
    """The tokenizer in a directory, or in one file of it.

    The first line of `LOADERS` whose files are all there decides. Nothing is fetched, and nothing in the directory can name
    code: what it names is in the tokenizer's `notes`.
    """
    path = Path(tokenizer_path)
    if path.is_file():
        folder = TokenizerFiles(path.parent, {}, {}, [], {})
        for names, reader in LOADERS:
            if len(names) == 1 and path.match(names[0]):
                return reader(folder, path)
        raise ModelError(f"{path} is not a tokenizer file; known are {_list_known_files(single=True)}.")
    if not path.is_dir():
        raise ModelError(f"{path} does not exist; a directory with tokenizer files is needed.")
    for names, reader in LOADERS:
        found = [sorted(path.glob(name)) for name in names]
        if all(found):
            for files in found:
                resolve_inside(files[0], path)
            folder = read_tokenizer_files(path)
            if not (reader is _load_json and folder.has_sentencepiece):
                return reader(folder, *(files[0] for files in found))
    there = ", ".join(sorted(file.name for file in path.iterdir())[:10]) or "nothing"
    raise ModelError(f"{path} has no tokenizer files; it has {there}. Known are {_list_known_files()}.")


def load_llama2c_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer that llama2.c writes beside a model: pieces with scores, and bytes for what has no piece."""
    path = Path(path)
    model = llama2c_to_sentencepiece(read_bytes(path), str(path))
    folder = TokenizerFiles(path.parent, {"tokenizer_class": "LlamaTokenizer"}, {}, [], {})
    return _build_from_sentencepiece(folder, model, "tokenizer.model", str(path))


def _load_json(folder: TokenizerFiles, path: Path) -> Tokenizer:
    spec = read_json(path)
    engine = HFBackend(spec, str(path), folder.special_tokens)
    cut = spec.get("truncation")
    length = cut.get("max_length") if isinstance(cut, dict) else None
    length = folder.max_tokens or (length if isinstance(length, int) and length > 0 else None)
    roles = folder.find_role_ids(engine.special_tokens)
    return Tokenizer(
        engine, roles, max_tokens=length, notes=folder.collect_notes(roles), passthrough=folder.passthrough
    )


def _load_wordpiece(folder: TokenizerFiles, path: Path) -> Tokenizer:
    """BERT's vocab.txt: one token a line."""
    content = read_text(path)
    if "\0" in content:
        raise ModelError(f"{path} has a NUL at character {content.index(chr(0)):,}; a vocabulary is text.")
    lines = re.sub(r"\r\n?", "\n", content).removesuffix("\n").split("\n")
    built = Built(models.WordPiece({}, unk_token=folder.role_tokens.get("unk", "[UNK]")))
    built.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(folder.config.get("tokenize_chinese_chars", True)),
        strip_accents=folder.config.get("strip_accents"),
        lowercase=bool(folder.config.get("do_lower_case", True)),
    )
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    built.decoder = decoders.WordPiece(prefix="##")
    model = {"vocab": {token: id for id, token in enumerate(lines)}}
    return _build_from_vocab(folder, path, built, model, folder.choose_template("bert"))


def _load_bpe(folder: TokenizerFiles, path: Path, merges_path: Path) -> Tokenizer:
    """Byte-level BPE: GPT-2, RoBERTa, BART; the latter two have <s> in their vocabulary."""
    vocab = read_json(path)
    check_vocab(vocab, str(path))
    content = read_text(merges_path)
    if content.count("\n") > MAX_MERGES + 1:
        raise ModelError(f"{merges_path} has {content.count(chr(10)):,} lines; at most {MAX_MERGES:,} merges are read.")
    merges = [line.rstrip("\r").split(" ") for line in content.split("\n") if line.strip() and line[:8] != "#version"]
    check_merges(merges, str(merges_path))
    frame = folder.choose_template("roberta" if {"<s>", "</s>"} <= vocab.keys() else "none")
    if frame == TEMPLATES["roberta"]:  # the ends of a text also play BERT's roles
        folder = replace(folder, role_tokens={"cls": "<s>", "sep": "</s>"} | folder.role_tokens)
    built = Built(models.BPE({}, [], continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(folder.config.get("add_prefix_space", False)))
    built.decoder = decoders.ByteLevel()
    model = {"vocab": vocab, "merges": merges}
    return _build_from_vocab(folder, path, built, model, frame)


def _build_from_vocab(
    folder: TokenizerFiles, path: Path, built: Built, model: dict[str, Any], template: SpecialTokenTemplate
) -> Tokenizer:
    """Fill an empty tokenizer with a vocabulary, its special tokens and what the family puts around a text."""
    special = {name: model["vocab"][name] for name in folder.find_special_tokens(model["vocab"])}
    roles = folder.find_role_ids(special)
    missing = sorted(template.list_required_roles() - roles.keys())
    if missing:
        named = [
            f"{role} ({abbreviate(folder.role_tokens[role])})" if role in folder.role_tokens else role
            for role in missing
        ]
        raise ModelError(f"{path}: the family puts {', '.join(named)} around a text; the vocabulary has no such token.")
    names = {
        role: next(name for name in special if special[name] == roles[role]) for role in template.list_required_roles()
    }
    ends = {role: (names[role], roles[role]) for role in template.list_required_roles()}
    with as_model_error(f"{path} cannot be read"):
        if template == TEMPLATES["roberta"]:  # also takes the space before a word out of its span
            space = bool(folder.config.get("add_prefix_space", False))
            built.post_processor = processors.RobertaProcessing(ends["eos"], ends["bos"], True, space)
        elif ends:
            single, pair = template.to_hf_template(names)
            built.post_processor = processors.TemplateProcessing(single, pair, sorted(set(ends.values())))
    spec = json.loads(built.to_str())
    spec["model"] |= model
    spec["added_tokens"] = [
        _make_added_token(name, id) for name, id in sorted(special.items(), key=lambda pair: pair[1])
    ]
    engine = HFBackend(spec, str(path), folder.special_tokens)
    roles = folder.find_role_ids(engine.special_tokens)
    return Tokenizer(
        engine, roles, max_tokens=folder.max_tokens, notes=folder.collect_notes(roles), passthrough=folder.passthrough
    )


def _make_added_token(name: str, id: int) -> dict[str, Any]:
    """A special token as tokenizer.json lists it; <mask> takes the space before it, for those who read the file elsewhere."""
    plain = {"single_word": False, "lstrip": name == "<mask>", "rstrip": False, "normalized": False, "special": True}
    return {"id": id, "content": name, **plain}


def _refuse_fairseq(folder: TokenizerFiles, path: Path) -> Tokenizer:
    """XLM-RoBERTa's and CamemBERT's model, whose ids are not those of the model file."""
    raise ModelError(
        f"{path}: the ids of this tokenizer are made by a class of the transformers package and not by the file alone. Put a "
        f"tokenizer.json beside it: transformers.AutoTokenizer.from_pretrained({str(path.parent)!r}).save_pretrained(NEW)."
    )


def _load_sentencepiece(folder: TokenizerFiles, path: Path) -> Tokenizer:
    return _build_from_sentencepiece(folder, read_bytes(path), path.name, str(path))


def _build_from_sentencepiece(folder: TokenizerFiles, model: bytes, name: str, where: str) -> Tokenizer:
    """One SentencePiece model; without a stated class, one with a beginning is LLaMA's and one without is T5's or Marian's."""
    processor = open_sentencepiece(model, where)
    otherwise = "llama" if processor.bos_id() >= 0 else "marian" if name.endswith(".spm") else "t5"
    frame = folder.choose_template(otherwise)
    added = {token: id for token, id in folder.added_tokens.items() if id >= len(processor)}
    t5 = frame == TEMPLATES["t5"] and folder.tokenizer_class in ("T5Tokenizer", None) and name == "spiece.model"
    if t5 and not any(token.startswith("<extra_id_") for token in added):
        count = folder.config.get("extra_ids", 100)
        if type(count) is not int or not 0 <= count <= 10_000:
            raise ModelError(f"{where}: extra_ids is {count!r} in tokenizer_config.json; at most 10,000 are read.")
        added |= {f"<extra_id_{i}>": len(processor) + count - 1 - i for i in range(count)}
    classes = {
        TEMPLATES["t5"]: "T5Tokenizer",
        TEMPLATES["marian"]: "T5Tokenizer",
        TEMPLATES["bert"]: "BigBirdTokenizer",
    }
    config = {"tokenizer_class": folder.tokenizer_class or classes.get(frame, "LlamaTokenizer")}
    config |= {
        key: folder.config[key] for key in ("add_bos_token", "add_eos_token", "extra_ids") if key in folder.config
    }
    source = SentencePieceModel(processor, where, config=config, files={name: model})
    engine = SentencePieceBackend(source, frame, _find_role_tokens(folder, processor, added), added)
    roles = {role: engine.special_tokens[token] for role, token in engine.role_tokens.items()}
    return Tokenizer(
        engine, roles, max_tokens=folder.max_tokens, notes=folder.collect_notes(roles), passthrough=folder.passthrough
    )


def _find_role_tokens(folder: TokenizerFiles, processor: Any, added_tokens: dict[str, int]) -> dict[str, str]:
    """role -> token: what the files state, then the model's own, then usual names."""
    own = {
        "bos": processor.bos_id(),
        "eos": processor.eos_id(),
        "pad": processor.pad_id(),
        "unk": processor.unk_id(),
    }
    known = {role: processor.id_to_piece(id) for role, id in own.items() if id >= 0}
    for role in ("mask", "sep", "cls", "pad"):
        for name in ROLE_TOKENS[role]:
            if name in added_tokens or processor.piece_to_id(name) != processor.unk_id():
                known.setdefault(role, name)
    there = {
        role: name for role, name in folder.role_tokens.items() if name in added_tokens or _has_piece(processor, name)
    }
    return known | there


def _has_piece(processor: Any, name: str) -> bool:
    return processor.id_to_piece(processor.piece_to_id(name)) == name


def _load_marian(folder: TokenizerFiles, source: Path, target: Path, vocab_path: Path) -> Tokenizer:
    """Two SentencePiece models over one vocabulary (or two, where the directory says so): `target` is the second."""
    paths = [source, target, vocab_path]
    vocab = other = read_json(vocab_path)
    if folder.config.get("separate_vocabs"):
        paths.append(source.parent / "target_vocab.json")
        resolve_inside(paths[-1], source.parent)
        other = read_json(paths[-1])
    keys = ("source_lang", "target_lang", "separate_vocabs")
    config = {"tokenizer_class": "MarianTokenizer"} | {key: folder.config[key] for key in keys if key in folder.config}
    files = {path.name: read_bytes(path) for path in paths}
    names = {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"} | folder.role_tokens
    made: list[Tokenizer] = []
    for path, lookup in ((target, other), (source, vocab)):
        check_vocab(lookup, str(vocab_path))
        side = SentencePieceModel(open_sentencepiece(files[path.name], str(path)), str(path), lookup, config, files)
        codes = {token: id for token, id in lookup.items() if re.fullmatch(r">>.+<<", token)}
        engine = SentencePieceBackend(side, TEMPLATES["marian"], names, codes)
        roles = {role: engine.special_tokens[token] for role, token in engine.role_tokens.items()}
        made.append(
            Tokenizer(
                engine,
                roles,
                max_tokens=folder.max_tokens,
                target=made[0] if made else None,
                notes=folder.notes,
                passthrough=folder.passthrough,
            )
        )
    return made[1]


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
