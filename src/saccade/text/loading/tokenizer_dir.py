"""Reads the config files of a tokenizer directory: special tokens and their roles, added tokens, maximum length."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade.errors import ModelError
from saccade.text.loading.safe_files import MAX_VOCAB, abbreviate, read_json, read_text, resolve_inside
from saccade.text.special_tokens import ROLE_KEYS, ROLE_TOKENS, TEMPLATES, TEMPLATES_BY_CLASS, SpecialTokenTemplate
from saccade.text.tokenizer import CHAT_TEMPLATE_FILE, OWN_CONFIG_KEY, PassthroughConfig


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer directory with the content of tokenizer_config.json and special_tokens_map.json."""

    path: Path
    config: dict[str, Any]
    role_tokens: dict[str, str]  # role -> token
    special_tokens: list[str]  # all special tokens named in the files
    added_tokens: dict[str, int]  # tokens beyond the vocabulary, with their ids
    notes: tuple[str, ...] = ()
    passthrough: PassthroughConfig = field(default_factory=PassthroughConfig)
    has_sentencepiece: bool = False  # there is a SentencePiece model from which tokenizer.json was converted

    @property
    def tokenizer_class(self) -> str | None:
        """The class name in tokenizer_config.json, without "Fast"."""
        name = self.config.get("tokenizer_class")
        return name.removesuffix("Fast") if isinstance(name, str) else None

    @property
    def max_tokens(self) -> int | None:
        """The maximum input length in tokens; None if unknown, for which published files have 1e30."""
        length = self.config.get("model_max_length")
        return int(length) if isinstance(length, int | float) and 0 < length < 1e9 else None

    def choose_template(self, default: str) -> SpecialTokenTemplate:
        """The special-token template of the tokenizer class; for an unknown class, the default."""
        name = TEMPLATES_BY_CLASS.get(self.tokenizer_class or "", default)
        begin, end = (self.config.get(key) for key in ("add_bos_token", "add_eos_token"))
        if name in ("llama", "none") and (begin is not None or end is not None):
            begin = name == "llama" if begin is None else bool(begin)
            name = {(1, 0): "llama", (1, 1): "bos_eos", (0, 1): "t5", (0, 0): "none"}[int(begin), int(bool(end))]
        return TEMPLATES[name]

    def find_role_ids(self, special_tokens: dict[str, int]) -> dict[str, int]:
        """The id of each role: of the token named in the files, or of a special token with a usual name."""
        role_ids = {}
        for role, usual in ROLE_TOKENS.items():
            names = [self.role_tokens[role]] if role in self.role_tokens else usual
            ids = [special_tokens[name] for name in names if name in special_tokens]
            if ids:
                role_ids[role] = ids[0]
        return role_ids

    def collect_notes(self, role_ids: dict[str, int]) -> tuple[str, ...]:
        """The notes, and a note on roles whose token is not in the vocabulary."""
        missing = [
            f"{ROLE_KEYS[role]} = {abbreviate(self.role_tokens[role])}"
            for role in self.role_tokens
            if role not in role_ids
        ]
        note = (
            f"{self.path / CONFIG_FILES[0]} or a file beside it names tokens that do not exist: {', '.join(missing)}."
        )
        return (*self.notes, *([note] if missing else []))

    def find_special_tokens(self, vocab: dict[str, int]) -> list[str]:
        """The special tokens in a plain vocabulary: those named in the files, and those with a usual name."""
        names = [*self.special_tokens, *(name for usual in ROLE_TOKENS.values() for name in usual)]
        return [name for name in dict.fromkeys(names) if name in vocab]


PASSTHROUGH_KEYS = ("chat_template", "padding_side", "truncation_side")
CONFIG_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


def read_tokenizer_files(path: Path) -> TokenizerFiles:
    """Read the config files, all of which are optional."""
    for name in CONFIG_FILES:
        if (path / name).exists():
            resolve_inside(path / name, path)
    config, special_map = (read_json(path / name) for name in CONFIG_FILES[:2])
    own_config = config.pop(OWN_CONFIG_KEY, None)
    has_sentencepiece = isinstance(own_config, dict) and any(path.glob("*.model"))
    config |= own_config if has_sentencepiece else {}
    role_tokens = {}
    for role, key in ROLE_KEYS.items():
        for file, table in zip(CONFIG_FILES, (config, special_map), strict=False):
            if table.get(key) is not None and not isinstance(table[key], str | dict):
                raise ModelError(f"{path / file}: {key} is {abbreviate(table[key])}; a token is needed.")
        name = _get_token_text(config.get(key)) or _get_token_text(special_map.get(key))
        if name:
            role_tokens[role] = name
    max_length = config.get("model_max_length")
    if max_length is not None and (type(max_length) not in (int, float) or not max_length > 0):
        raise ModelError(
            f"{path / CONFIG_FILES[0]}: model_max_length is {abbreviate(max_length)}; a number above 0 is needed."
        )
    added, special = _read_added_tokens(path, config)
    for table in (config, special_map):
        for key in ("additional_special_tokens", "extra_special_tokens"):
            tokens = table.get(key) or []
            tokens = list(tokens.values()) if isinstance(tokens, dict) else tokens
            special += [name for name in map(_get_token_text, tokens) if name] if isinstance(tokens, list) else []
    return TokenizerFiles(
        path,
        config,
        role_tokens,
        [*role_tokens.values(), *special],
        added,
        _note_remote_code(path, config),
        _read_passthrough(path, config),
        has_sentencepiece,
    )


def _read_passthrough(path: Path, config: dict[str, Any]) -> PassthroughConfig:
    """Settings kept for other programs: the chat template, from either place, and the padding and truncation sides."""
    template = None
    if (path / CHAT_TEMPLATE_FILE).exists():
        resolve_inside(path / CHAT_TEMPLATE_FILE, path)
        template = read_text(path / CHAT_TEMPLATE_FILE)
    return PassthroughConfig(template, {key: config[key] for key in PASSTHROUGH_KEYS if key in config})


def _get_token_text(token: Any) -> str | None:
    """The text of a token, which is a string or an object with a `content`."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) and token else None


def _read_added_tokens(path: Path, config: dict[str, Any]) -> tuple[dict[str, int], list[str]]:
    """The added tokens with ids in added_tokens.json and tokenizer_config.json, and the special ones among them."""
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
                f"{path}: the added token {abbreviate(name)} has the id {abbreviate(id)}; a whole number, 0 or more, is needed."
            )
    return ids, special


def _note_remote_code(path: Path, config: dict[str, Any]) -> tuple[str, ...]:
    if "auto_map" not in config:
        return ()
    return (
        f"{path / 'tokenizer_config.json'} names code (auto_map: {abbreviate(config['auto_map'])}); it was not run.",
    )
