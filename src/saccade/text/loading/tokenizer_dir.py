"""The small files beside a vocabulary: which token plays which role, which were added, how long a text may be."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade.errors import ModelError
from saccade.text.loading.safe_files import MAX_VOCAB, abbreviate, read_json, read_text, resolve_inside
from saccade.text.special_tokens import ROLE_KEYS, ROLE_TOKENS, TEMPLATES, TEMPLATES_BY_CLASS, SpecialTokenTemplate
from saccade.text.tokenizer import CHAT_TEMPLATE_FILE, OWN_CONFIG_KEY, PassthroughConfig


@dataclass(frozen=True)
class TokenizerFiles:
    """A directory with tokenizer files and what tokenizer_config.json and special_tokens_map.json say in it."""

    path: Path
    config: dict[str, Any]
    role_tokens: dict[str, str]  # role -> token
    special_tokens: list[str]  # every token that the files call special
    added_tokens: dict[str, int]  # tokens beyond the vocabulary's own, where a file gives their ids
    notes: tuple[str, ...] = ()
    passthrough: PassthroughConfig = field(default_factory=PassthroughConfig)
    has_sentencepiece: bool = (
        False  # a SentencePiece model is there, and the tokenizer.json beside it was made from that
    )

    @property
    def tokenizer_class(self) -> str | None:
        """The tokenizer class that is stated, without "Fast"."""
        name = self.config.get("tokenizer_class")
        return name.removesuffix("Fast") if isinstance(name, str) else None

    @property
    def max_tokens(self) -> int | None:
        """The longest input in tokens; published files write 1e30 for "not known"."""
        length = self.config.get("model_max_length")
        return int(length) if isinstance(length, int | float) and 0 < length < 1e9 else None

    def choose_template(self, default: str) -> SpecialTokenTemplate:
        """What the stated class puts around a text; for one we do not know, what this kind of vocabulary usually has."""
        name = TEMPLATES_BY_CLASS.get(self.tokenizer_class or "", default)
        begin, end = (self.config.get(key) for key in ("add_bos_token", "add_eos_token"))
        if name in ("llama", "none") and (begin is not None or end is not None):
            begin = name == "llama" if begin is None else bool(begin)
            name = {(1, 0): "llama", (1, 1): "bos_eos", (0, 1): "t5", (0, 0): "none"}[int(begin), int(bool(end))]
        return TEMPLATES[name]

    def find_role_ids(self, special_tokens: dict[str, int]) -> dict[str, int]:
        """The id of each role: what is stated, or a special token of a usual name."""
        found = {}
        for role, usual in ROLE_TOKENS.items():
            names = [self.role_tokens[role]] if role in self.role_tokens else usual
            there = [special_tokens[name] for name in names if name in special_tokens]
            if there:
                found[role] = there[0]
        return found

    def collect_notes(self, role_ids: dict[str, int]) -> tuple[str, ...]:
        """The notes, with the roles whose stated token is not there."""
        lost = [
            f"{ROLE_KEYS[role]} = {abbreviate(self.role_tokens[role])}"
            for role in self.role_tokens
            if role not in role_ids
        ]
        said = f"{self.path / CONFIG_FILES[0]} or its neighbours name tokens that are not there: {', '.join(lost)}."
        return (*self.notes, *([said] if lost else []))

    def find_special_tokens(self, vocab: dict[str, int]) -> list[str]:
        """The special tokens of a bare vocabulary: those that the files name, and those of a usual name."""
        names = [*self.special_tokens, *(name for usual in ROLE_TOKENS.values() for name in usual)]
        return [name for name in dict.fromkeys(names) if name in vocab]


PASSTHROUGH_KEYS = ("chat_template", "padding_side", "truncation_side")
CONFIG_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


def read_tokenizer_files(path: Path) -> TokenizerFiles:
    """Read the small files; none of them has to be there."""
    for name in CONFIG_FILES:
        if (path / name).exists():
            resolve_inside(path / name, path)
    config, listed = (read_json(path / name) for name in CONFIG_FILES[:2])
    ours = config.pop(OWN_CONFIG_KEY, None)
    pieces = isinstance(ours, dict) and any(path.glob("*.model"))
    config |= ours if pieces else {}
    stated = {}
    for role, key in ROLE_KEYS.items():
        for file, found in zip(CONFIG_FILES, (config, listed), strict=False):
            if found.get(key) is not None and not isinstance(found[key], str | dict):
                raise ModelError(f"{path / file}: {key} is {abbreviate(found[key])}; a token is needed.")
        name = _get_token_text(config.get(key)) or _get_token_text(listed.get(key))
        if name:
            stated[role] = name
    length = config.get("model_max_length")
    if length is not None and (type(length) not in (int, float) or not length > 0):
        raise ModelError(
            f"{path / CONFIG_FILES[0]}: model_max_length is {abbreviate(length)}; a number above 0 is needed."
        )
    added, special = _read_added_tokens(path, config)
    for more in (config, listed):
        for key in ("additional_special_tokens", "extra_special_tokens"):
            tokens = more.get(key) or []
            tokens = list(tokens.values()) if isinstance(tokens, dict) else tokens
            special += [name for name in map(_get_token_text, tokens) if name] if isinstance(tokens, list) else []
    return TokenizerFiles(
        path,
        config,
        stated,
        [*stated.values(), *special],
        added,
        _note_remote_code(path, config),
        _read_passthrough(path, config),
        pieces,
    )


def _read_passthrough(path: Path, config: dict[str, Any]) -> PassthroughConfig:
    """What is for other programs: the chat template, in either place where it is published, and which side is padded or cut."""
    template = None
    if (path / CHAT_TEMPLATE_FILE).exists():
        resolve_inside(path / CHAT_TEMPLATE_FILE, path)
        template = read_text(path / CHAT_TEMPLATE_FILE)
    return PassthroughConfig(template, {key: config[key] for key in PASSTHROUGH_KEYS if key in config})


def _get_token_text(token: Any) -> str | None:
    """A token is written as a string, or as an object with a content."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) and token else None


def _read_added_tokens(path: Path, config: dict[str, Any]) -> tuple[dict[str, int], list[str]]:
    """Tokens with ids from added_tokens.json and tokenizer_config.json, and those of them that are special."""
    ids, special = dict(read_json(path / "added_tokens.json")), []
    listed = config.get("added_tokens_decoder") or {}
    for id, token in listed.items() if isinstance(listed, dict) else ():
        name = _get_token_text(token)
        if name and id.isdecimal():
            ids[name] = int(id[:12])
            special += [name] if isinstance(token, dict) and token.get("special") else []
    for name, id in ids.items():
        if type(id) is not int or not 0 <= id < 10 * MAX_VOCAB:
            raise ModelError(
                f"{path}: the added token {abbreviate(name)} has the id {abbreviate(id)}; a number from 0 is needed."
            )
    return ids, special


def _note_remote_code(path: Path, config: dict[str, Any]) -> tuple[str, ...]:
    if "auto_map" not in config:
        return ()
    return (
        f"{path / 'tokenizer_config.json'} names code (auto_map: {abbreviate(config['auto_map'])}); it was not run.",
    )
