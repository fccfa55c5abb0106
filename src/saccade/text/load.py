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
from saccade.text.fast import Fast
from saccade.text.files import guarded, read, read_json, read_text, shown, stay_inside
from saccade.text.folder import Folder, open_folder
from saccade.text.frame import FRAMES, NAMES, Frame
from saccade.text.pieces import Pieces, Source, open_model
from saccade.text.proto import llama2c_model
from saccade.text.spec import MERGES, check_merges, check_vocab
from saccade.text.tokenizer import Tokenizer


def load(where: str | Path) -> Tokenizer:
    """The tokenizer in a directory, or in one file of it.

    The first line of `READERS` whose files are all there decides. Nothing is fetched, and nothing in the directory can name
    code: what it names is in the tokenizer's `notes`.
    """
    path = Path(where)
    if path.is_file():
        folder = Folder(path.parent, {}, {}, [], {})
        for names, reader in READERS:
            if len(names) == 1 and path.match(names[0]):
                return reader(folder, path)
        raise ModelError(f"{path} is not a tokenizer file; known are {_known(single=True)}.")
    if not path.is_dir():
        raise ModelError(f"{path} does not exist; a directory with tokenizer files is needed.")
    for names, reader in READERS:
        found = [sorted(path.glob(name)) for name in names]
        if all(found):
            for files in found:
                stay_inside(files[0], path)
            folder = open_folder(path)
            if not (reader is _json and folder.pieces):
                return reader(folder, *(files[0] for files in found))
    there = ", ".join(sorted(file.name for file in path.iterdir())[:10]) or "nothing"
    raise ModelError(f"{path} has no tokenizer files; it has {there}. Known are {_known()}.")


def from_llama2c(path: str | Path) -> Tokenizer:
    """The tokenizer that llama2.c writes beside a model: pieces with scores, and bytes for what has no piece."""
    path = Path(path)
    model = llama2c_model(read(path), str(path))
    folder = Folder(path.parent, {"tokenizer_class": "LlamaTokenizer"}, {}, [], {})
    return _from_model(folder, model, "tokenizer.model", str(path))


def _json(folder: Folder, path: Path) -> Tokenizer:
    spec = read_json(path)
    engine = Fast(spec, str(path), folder.special)
    cut = spec.get("truncation")
    length = cut.get("max_length") if isinstance(cut, dict) else None
    length = folder.length or (length if isinstance(length, int) and length > 0 else None)
    roles = folder.roles(engine.special)
    return Tokenizer(engine, roles, length=length, notes=folder.remarks(roles), kept=folder.kept)


def _wordpiece(folder: Folder, path: Path) -> Tokenizer:
    """BERT's vocab.txt: one token a line."""
    content = read_text(path)
    if "\0" in content:
        raise ModelError(f"{path} has a NUL at character {content.index(chr(0)):,}; a vocabulary is text.")
    lines = re.sub(r"\r\n?", "\n", content).removesuffix("\n").split("\n")
    built = Built(models.WordPiece({}, unk_token=folder.stated.get("unknown", "[UNK]")))
    built.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(folder.config.get("tokenize_chinese_chars", True)),
        strip_accents=folder.config.get("strip_accents"),
        lowercase=bool(folder.config.get("do_lower_case", True)),
    )
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    built.decoder = decoders.WordPiece(prefix="##")
    model = {"vocab": {token: id for id, token in enumerate(lines)}}
    return _from_vocab(folder, path, built, model, folder.frame("bert"))


def _bpe(folder: Folder, path: Path, merges_path: Path) -> Tokenizer:
    """Byte-level BPE: GPT-2, RoBERTa, BART; the latter two have <s> in their vocabulary."""
    vocab = read_json(path)
    check_vocab(vocab, str(path))
    content = read_text(merges_path)
    if content.count("\n") > MERGES + 1:
        raise ModelError(f"{merges_path} has {content.count(chr(10)):,} lines; at most {MERGES:,} merges are read.")
    merges = [line.rstrip("\r").split(" ") for line in content.split("\n") if line.strip() and line[:8] != "#version"]
    check_merges(merges, str(merges_path))
    frame = folder.frame("roberta" if {"<s>", "</s>"} <= vocab.keys() else "none")
    if frame == FRAMES["roberta"]:  # the ends of a text also play BERT's roles
        folder = replace(folder, stated={"classify": "<s>", "separator": "</s>"} | folder.stated)
    built = Built(models.BPE({}, [], continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(folder.config.get("add_prefix_space", False)))
    built.decoder = decoders.ByteLevel()
    model = {"vocab": vocab, "merges": merges}
    return _from_vocab(folder, path, built, model, frame)


def _from_vocab(folder: Folder, path: Path, built: Built, model: dict[str, Any], frame: Frame) -> Tokenizer:
    """Fill an empty tokenizer with a vocabulary, its special tokens and what the family puts around a text."""
    special = {name: model["vocab"][name] for name in folder.usual(model["vocab"])}
    roles = folder.roles(special)
    missing = sorted(frame.roles() - roles.keys())
    if missing:
        named = [f"{role} ({shown(folder.stated[role])})" if role in folder.stated else role for role in missing]
        raise ModelError(f"{path}: the family puts {', '.join(named)} around a text; the vocabulary has no such token.")
    names = {role: next(name for name in special if special[name] == roles[role]) for role in frame.roles()}
    ends = {role: (names[role], roles[role]) for role in frame.roles()}
    with guarded(f"{path} cannot be read"):
        if frame == FRAMES["roberta"]:  # also takes the space before a word out of its span
            space = bool(folder.config.get("add_prefix_space", False))
            built.post_processor = processors.RobertaProcessing(ends["end"], ends["begin"], True, space)
        elif ends:
            single, pair = frame.template(names)
            built.post_processor = processors.TemplateProcessing(single, pair, sorted(set(ends.values())))
    spec = json.loads(built.to_str())
    spec["model"] |= model
    spec["added_tokens"] = [_flagged(name, id) for name, id in sorted(special.items(), key=lambda pair: pair[1])]
    engine = Fast(spec, str(path), folder.special)
    roles = folder.roles(engine.special)
    return Tokenizer(engine, roles, length=folder.length, notes=folder.remarks(roles), kept=folder.kept)


def _flagged(name: str, id: int) -> dict[str, Any]:
    """A special token as tokenizer.json lists it; <mask> takes the space before it, for those who read the file elsewhere."""
    plain = {"single_word": False, "lstrip": name == "<mask>", "rstrip": False, "normalized": False, "special": True}
    return {"id": id, "content": name, **plain}


def _fairseq(folder: Folder, path: Path) -> Tokenizer:
    """XLM-RoBERTa's and CamemBERT's model, whose ids are not those of the model file."""
    raise ModelError(
        f"{path}: the ids of this tokenizer are made by a class of the transformers package and not by the file alone. Put a "
        f"tokenizer.json beside it: transformers.AutoTokenizer.from_pretrained({str(path.parent)!r}).save_pretrained(NEW)."
    )


def _pieces(folder: Folder, path: Path) -> Tokenizer:
    return _from_model(folder, read(path), path.name, str(path))


def _from_model(folder: Folder, model: bytes, name: str, where: str) -> Tokenizer:
    """One SentencePiece model; without a stated class, one with a beginning is LLaMA's and one without is T5's or Marian's."""
    processor = open_model(model, where)
    otherwise = "llama" if processor.bos_id() >= 0 else "marian" if name.endswith(".spm") else "t5"
    frame = folder.frame(otherwise)
    added = {token: id for token, id in folder.added.items() if id >= len(processor)}
    t5 = frame == FRAMES["t5"] and folder.kind in ("T5Tokenizer", None) and name == "spiece.model"
    if t5 and not any(token.startswith("<extra_id_") for token in added):
        count = folder.config.get("extra_ids", 100)
        if type(count) is not int or not 0 <= count <= 10_000:
            raise ModelError(f"{where}: extra_ids is {count!r} in tokenizer_config.json; at most 10,000 are read.")
        added |= {f"<extra_id_{i}>": len(processor) + count - 1 - i for i in range(count)}
    classes = {FRAMES["t5"]: "T5Tokenizer", FRAMES["marian"]: "T5Tokenizer", FRAMES["bert"]: "BigBirdTokenizer"}
    config = {"tokenizer_class": folder.kind or classes.get(frame, "LlamaTokenizer")}
    config |= {
        key: folder.config[key] for key in ("add_bos_token", "add_eos_token", "extra_ids") if key in folder.config
    }
    source = Source(processor, where, config=config, files={name: model})
    engine = Pieces(source, frame, _names(folder, processor, added), added)
    roles = {role: engine.special[token] for role, token in engine.names.items()}
    return Tokenizer(engine, roles, length=folder.length, notes=folder.remarks(roles), kept=folder.kept)


def _names(folder: Folder, processor: Any, added: dict[str, int]) -> dict[str, str]:
    """role -> token: what the files state, then the model's own, then usual names."""
    own = {
        "begin": processor.bos_id(),
        "end": processor.eos_id(),
        "pad": processor.pad_id(),
        "unknown": processor.unk_id(),
    }
    known = {role: processor.id_to_piece(id) for role, id in own.items() if id >= 0}
    for role in ("mask", "separator", "classify", "pad"):
        for name in NAMES[role]:
            if name in added or processor.piece_to_id(name) != processor.unk_id():
                known.setdefault(role, name)
    there = {role: name for role, name in folder.stated.items() if name in added or _has(processor, name)}
    return known | there


def _has(processor: Any, name: str) -> bool:
    return processor.id_to_piece(processor.piece_to_id(name)) == name


def _marian(folder: Folder, source: Path, target: Path, vocab_path: Path) -> Tokenizer:
    """Two SentencePiece models over one vocabulary (or two, where the directory says so): `target` is the second."""
    paths = [source, target, vocab_path]
    vocab = other = read_json(vocab_path)
    if folder.config.get("separate_vocabs"):
        paths.append(source.parent / "target_vocab.json")
        stay_inside(paths[-1], source.parent)
        other = read_json(paths[-1])
    keys = ("source_lang", "target_lang", "separate_vocabs")
    config = {"tokenizer_class": "MarianTokenizer"} | {key: folder.config[key] for key in keys if key in folder.config}
    files = {path.name: read(path) for path in paths}
    names = {"end": "</s>", "unknown": "<unk>", "pad": "<pad>"} | folder.stated
    made: list[Tokenizer] = []
    for path, lookup in ((target, other), (source, vocab)):
        check_vocab(lookup, str(vocab_path))
        side = Source(open_model(files[path.name], str(path)), str(path), lookup, config, files)
        codes = {token: id for token, id in lookup.items() if re.fullmatch(r">>.+<<", token)}
        engine = Pieces(side, FRAMES["marian"], names, codes)
        roles = {role: engine.special[token] for role, token in engine.names.items()}
        made.append(
            Tokenizer(
                engine,
                roles,
                length=folder.length,
                target=made[0] if made else None,
                notes=folder.notes,
                kept=folder.kept,
            )
        )
    return made[1]


def _known(*, single: bool = False) -> str:
    return ", ".join(" + ".join(names) for names, _ in READERS if len(names) == 1 or not single)


READERS: list[tuple[tuple[str, ...], Callable[..., Tokenizer]]] = [
    (("tokenizer.json",), _json),
    (("source.spm", "target.spm", "vocab.json"), _marian),
    (("vocab.json", "merges.txt"), _bpe),
    (("encoder.json", "vocab.bpe"), _bpe),
    (("vocab.txt",), _wordpiece),
    (("spiece.model",), _pieces),
    (("sentencepiece.bpe.model",), _fairseq),
    (("*.model",), _pieces),
    (("*.spm",), _pieces),
]
