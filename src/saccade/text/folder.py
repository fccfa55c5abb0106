"""The small files beside a vocabulary: which token plays which role, which were added, how long a text may be."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade.errors import ModelError
from saccade.text.files import TOKENS, read_json, read_text, shown, stay_inside
from saccade.text.frame import CLASSES, FRAMES, NAMES, ROLES, Frame
from saccade.text.tokenizer import OURS, TEMPLATE, Kept


@dataclass(frozen=True)
class Folder:
    """A directory with tokenizer files and what tokenizer_config.json and special_tokens_map.json say in it."""

    path: Path
    config: dict[str, Any]
    stated: dict[str, str]  # role -> token
    special: list[str]  # every token that the files call special
    added: dict[str, int]  # tokens beyond the vocabulary's own, where a file gives their ids
    notes: tuple[str, ...] = ()
    kept: Kept = field(default_factory=Kept)
    pieces: bool = False  # a SentencePiece model is there, and the tokenizer.json beside it was made from that

    @property
    def kind(self) -> str | None:
        """The tokenizer class that is stated, without "Fast"."""
        name = self.config.get("tokenizer_class")
        return name.removesuffix("Fast") if isinstance(name, str) else None

    @property
    def length(self) -> int | None:
        """The longest input in tokens; published files write 1e30 for "not known"."""
        length = self.config.get("model_max_length")
        return int(length) if isinstance(length, int | float) and 0 < length < 1e9 else None

    def frame(self, otherwise: str) -> Frame:
        """What the stated class puts around a text; for one we do not know, what this kind of vocabulary usually has."""
        name = CLASSES.get(self.kind or "", otherwise)
        begin, end = (self.config.get(key) for key in ("add_bos_token", "add_eos_token"))
        if name in ("llama", "none") and (begin is not None or end is not None):
            begin = name == "llama" if begin is None else bool(begin)
            name = {(1, 0): "llama", (1, 1): "both", (0, 1): "t5", (0, 0): "none"}[int(begin), int(bool(end))]
        return FRAMES[name]

    def roles(self, special: dict[str, int]) -> dict[str, int]:
        """The id of each role: what is stated, or a special token of a usual name."""
        found = {}
        for role, usual in NAMES.items():
            names = [self.stated[role]] if role in self.stated else usual
            there = [special[name] for name in names if name in special]
            if there:
                found[role] = there[0]
        return found

    def remarks(self, roles: dict[str, int]) -> tuple[str, ...]:
        """The notes, with the roles whose stated token is not there."""
        lost = [f"{ROLES[role]} = {shown(self.stated[role])}" for role in self.stated if role not in roles]
        said = f"{self.path / SMALL[0]} or its neighbours name tokens that are not there: {', '.join(lost)}."
        return (*self.notes, *([said] if lost else []))

    def usual(self, vocab: dict[str, int]) -> list[str]:
        """The special tokens of a bare vocabulary: those that the files name, and those of a usual name."""
        names = [*self.special, *(name for usual in NAMES.values() for name in usual)]
        return [name for name in dict.fromkeys(names) if name in vocab]


KEPT = ("chat_template", "padding_side", "truncation_side")
SMALL = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


def open_folder(path: Path) -> Folder:
    """Read the small files; none of them has to be there."""
    for name in SMALL:
        if (path / name).exists():
            stay_inside(path / name, path)
    config, listed = (read_json(path / name) for name in SMALL[:2])
    ours = config.pop(OURS, None)
    pieces = isinstance(ours, dict) and any(path.glob("*.model"))
    config |= ours if pieces else {}
    stated = {}
    for role, key in ROLES.items():
        for file, found in zip(SMALL, (config, listed), strict=False):
            if found.get(key) is not None and not isinstance(found[key], str | dict):
                raise ModelError(f"{path / file}: {key} is {shown(found[key])}; a token is needed.")
        name = _content(config.get(key)) or _content(listed.get(key))
        if name:
            stated[role] = name
    length = config.get("model_max_length")
    if length is not None and (type(length) not in (int, float) or not length > 0):
        raise ModelError(f"{path / SMALL[0]}: model_max_length is {shown(length)}; a number above 0 is needed.")
    added, special = _added(path, config)
    for more in (config, listed):
        for key in ("additional_special_tokens", "extra_special_tokens"):
            tokens = more.get(key) or []
            tokens = list(tokens.values()) if isinstance(tokens, dict) else tokens
            special += [name for name in map(_content, tokens) if name] if isinstance(tokens, list) else []
    return Folder(
        path, config, stated, [*stated.values(), *special], added, _notes(path, config), _kept(path, config), pieces
    )


def _kept(path: Path, config: dict[str, Any]) -> Kept:
    """What is for other programs: the chat template, in either place where it is published, and which side is padded or cut."""
    template = None
    if (path / TEMPLATE).exists():
        stay_inside(path / TEMPLATE, path)
        template = read_text(path / TEMPLATE)
    return Kept(template, {key: config[key] for key in KEPT if key in config})


def _content(token: Any) -> str | None:
    """A token is written as a string, or as an object with a content."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) and token else None


def _added(path: Path, config: dict[str, Any]) -> tuple[dict[str, int], list[str]]:
    """Tokens with ids from added_tokens.json and tokenizer_config.json, and those of them that are special."""
    ids, special = dict(read_json(path / "added_tokens.json")), []
    listed = config.get("added_tokens_decoder") or {}
    for id, token in listed.items() if isinstance(listed, dict) else ():
        name = _content(token)
        if name and id.isdecimal():
            ids[name] = int(id[:12])
            special += [name] if isinstance(token, dict) and token.get("special") else []
    for name, id in ids.items():
        if type(id) is not int or not 0 <= id < 10 * TOKENS:
            raise ModelError(
                f"{path}: the added token {shown(name)} has the id {shown(id)}; a number from 0 is needed."
            )
    return ids, special


def _notes(path: Path, config: dict[str, Any]) -> tuple[str, ...]:
    if "auto_map" not in config:
        return ()
    return (f"{path / 'tokenizer_config.json'} names code (auto_map: {shown(config['auto_map'])}); it was not run.",)
