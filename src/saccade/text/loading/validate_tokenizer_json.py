"""Validates an untrusted tokenizer.json before the tokenizers library builds it: limits on size, depth and running time."""

import base64
import binascii
import math
from typing import Any

from saccade.errors import ModelError
from saccade.text.loading.safe_files import MAX_VOCAB, abbreviate
from saccade.text.loading.safe_regex import check_regex

MAX_ADDED_TOKENS = 100_000
MAX_MERGES = 1_000_000  # the largest published list has about 580,000
MAX_TOKEN_CHARACTERS = 2_000  # of one token
MAX_WORD_CHARACTERS = 1_000  # WordPiece takes quadratic time in the length of a word
MAX_LIST_ENTRIES = 1_000  # of lists outside the vocabulary
MAX_COMPONENT_DEPTH = 20  # of nested components
MAX_GROWTH_FACTOR = 64  # by which replacements may lengthen a text; published ones insert one or two characters
MODEL_TYPES = ("BPE", "WordPiece", "WordLevel", "Unigram")


def check_tokenizer_json(spec: dict[str, Any], where: str) -> None:
    """Raise ModelError for too many entries, inconsistent tokens and ids, or a pattern that can hang."""
    model = spec.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise ModelError(f"{where} has no model with a vocabulary; is it a tokenizer.json?")
    if model.get("type") is not None and model["type"] not in MODEL_TYPES:
        raise ModelError(
            f"{where}: model type {abbreviate(model['type'])} is not supported; supported are {', '.join(MODEL_TYPES)}."
        )
    check_vocab(model["vocab"], where)
    check_merges(model.get("merges") or [], where)
    added = spec.get("added_tokens") or []
    _check_added_tokens(added, model["vocab"], where)
    max_characters = model.get("max_input_chars_per_word", 100)
    if type(max_characters) is not int or not 0 < max_characters <= MAX_WORD_CHARACTERS:
        raise ModelError(
            f"{where}: max_input_chars_per_word is {abbreviate(max_characters)}; expected 1 to {MAX_WORD_CHARACTERS}, since the "
            "time is quadratic."
        )
    _check_unknown_token(model, added, where)
    components = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    _check_components([(spec.get(name), 0) for name in components], where)


def check_vocab(vocab: dict | list, where: str) -> None:
    """Raise ModelError unless the vocabulary maps tokens to unique ids, or (Unigram) lists tokens with scores."""
    if not vocab:
        raise ModelError(f"{where}: the vocabulary is empty.")
    if len(vocab) > MAX_VOCAB:
        raise ModelError(f"{where} has {len(vocab):,} tokens; at most {MAX_VOCAB:,} are supported.")
    if isinstance(vocab, dict):
        ids = vocab.values()
        is_valid = set(map(type, ids)) == {int} and 0 <= min(ids) <= max(ids) < 10 * MAX_VOCAB  # fast check of all
        for token, id in () if is_valid else vocab.items():
            if type(id) is not int or not 0 <= id < 10 * MAX_VOCAB:
                raise ModelError(
                    f"{where}: the token {abbreviate(token)} has the id {abbreviate(id)}; a whole number, 0 or more, is needed."
                )
        _check_unique_ids(vocab, where)
    for i, entry in enumerate(vocab if isinstance(vocab, list) else ()):
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
            raise ModelError(f"{where}: entry {i} of the vocabulary is not a pair of a token and a score.")
        if type(entry[1]) not in (int, float) or not math.isfinite(entry[1]):
            raise ModelError(
                f"{where}: the token {abbreviate(entry[0])} has the score {abbreviate(entry[1])}; a finite number is needed."
            )
    longest = max(map(len, vocab) if isinstance(vocab, dict) else (len(token) for token, _ in vocab))
    if longest > MAX_TOKEN_CHARACTERS:
        raise ModelError(
            f"{where}: a token has {longest:,} characters; at most {MAX_TOKEN_CHARACTERS:,} are supported."
        )


def _check_unique_ids(vocab: dict[str, int], where: str) -> None:
    """Raise ModelError if two tokens have the same id."""
    if len(set(vocab.values())) == len(vocab):
        return
    names: dict[int, str] = {}
    for token, id in vocab.items():
        other = names.setdefault(id, token)
        if other != token:
            raise ModelError(f"{where}: the tokens {abbreviate(other)} and {abbreviate(token)} have the same id, {id}.")


def check_merges(merges: Any, where: str) -> None:
    """Raise ModelError unless merges is a list of pairs of tokens."""
    if not isinstance(merges, list):
        raise ModelError(f"{where}: merges is a {type(merges).__name__}; a list of pairs is needed.")
    if len(merges) > MAX_MERGES:
        raise ModelError(f"{where} has {len(merges):,} merges; at most {MAX_MERGES:,} are supported.")
    for i, pair in enumerate(merges):
        words = pair.split(" ", 1) if isinstance(pair, str) else pair
        if not isinstance(words, list) or len(words) != 2 or not all(isinstance(word, str) for word in words):
            raise ModelError(f"{where}: merge {i} is {abbreviate(pair)}; two tokens are needed.")


def _check_added_tokens(added_tokens: Any, vocab: dict | list, where: str) -> None:
    """Raise ModelError unless added tokens have a text and a unique id that agrees with the vocabulary."""
    if not isinstance(added_tokens, list) or not all(
        isinstance(x, dict) and isinstance(x.get("content"), str) for x in added_tokens
    ):
        raise ModelError(f"{where}: added_tokens must be a list of tokens with a `content`.")
    if len(added_tokens) > MAX_ADDED_TOKENS:
        raise ModelError(f"{where} has {len(added_tokens):,} added tokens; at most {MAX_ADDED_TOKENS:,} are supported.")
    known: dict[str, int] = dict(vocab) if isinstance(vocab, dict) else {}
    for token in added_tokens:
        name, id = token["content"], token.get("id")
        if not 0 < len(name) <= MAX_TOKEN_CHARACTERS:
            raise ModelError(
                f"{where}: an added token has {len(name):,} characters; expected 1 to {MAX_TOKEN_CHARACTERS:,}."
            )
        if id is not None and (type(id) is not int or not 0 <= id < 10 * MAX_VOCAB):
            raise ModelError(
                f"{where}: the added token {abbreviate(name)} has the id {abbreviate(id)}; a whole number, 0 or more, is needed."
            )
        if id is not None and known.setdefault(name, id) != id:
            raise ModelError(f"{where}: the token {abbreviate(name)} has two ids, {known[name]} and {id}.")
    if isinstance(vocab, dict):
        _check_unique_ids(known, where)


def _check_unknown_token(model: dict[str, Any], added_tokens: list[dict[str, Any]], where: str) -> None:
    """Raise ModelError if the unknown token is not in the vocabulary."""
    vocab, name, id = model["vocab"], model.get("unk_token"), model.get("unk_id")
    known = {token["content"] for token in added_tokens}
    if name is not None and isinstance(vocab, dict) and name not in vocab and name not in known:
        raise ModelError(f"{where}: the unknown token, {abbreviate(name)}, is not in the vocabulary.")
    if id is not None and (type(id) is not int or not 0 <= id < len(vocab)):
        raise ModelError(f"{where}: unk_id is {abbreviate(id)}; the vocabulary has {len(vocab):,} tokens.")


def _check_components(stack: list[tuple[Any, int]], where: str) -> None:
    """Check the components besides the model: length of lists, patterns, and growth of the text by replacements."""
    growth = 1
    while stack:
        node, depth = stack.pop()
        if depth > 2 * MAX_COMPONENT_DEPTH:  # an object and a list per component
            raise ModelError(f"{where} has components nested more than {MAX_COMPONENT_DEPTH} deep.")
        if isinstance(node, list | dict) and len(node) > MAX_LIST_ENTRIES:
            raise ModelError(
                f"{where} has a list of {len(node):,} entries outside the vocabulary; at most {MAX_LIST_ENTRIES:,} are supported."
            )
        if isinstance(node, dict):
            stack += [(child, depth + 1) for child in node.values()]
            _check_component(node, where)
            for key in ("content", "prepend"):
                growth *= max(1, len(node[key])) if isinstance(node.get(key), str) else 1
        elif isinstance(node, list):
            stack += [(child, depth + 1) for child in node]
    if growth > MAX_GROWTH_FACTOR:
        raise ModelError(
            f"{where} can make a text {growth:,} times longer; at most {MAX_GROWTH_FACTOR} times is supported."
        )


def _check_component(node: dict[str, Any], where: str) -> None:
    """Check a single component."""
    if isinstance(node.get("Regex"), str):
        check_regex(node["Regex"], where)
    if "precompiled_charsmap" in node:
        _check_charsmap(node["precompiled_charsmap"], where)
    if node.get("type") == "FixedLength" and (type(node.get("length")) is not int or node["length"] < 1):
        raise ModelError(
            f"{where} has FixedLength with length {abbreviate(node.get('length'))}; a whole number, 1 or more, is needed."
        )
    if node.get("type") == "TemplateProcessing":
        _check_template(node, where)


def _check_template(node: dict[str, Any], where: str) -> None:
    """Raise ModelError if a template uses a special token without ids."""
    known: Any = node.get("special_tokens")
    sides: list[Any] = [node.get("single"), node.get("pair")]
    for slot in [slot for side in sides if isinstance(side, list) for slot in side]:
        token = slot.get("SpecialToken") if isinstance(slot, dict) else None
        name = token.get("id") if isinstance(token, dict) else None
        if name is not None and (not isinstance(known, dict) or name not in known):
            raise ModelError(f"{where} uses {abbreviate(name)} in its template, but does not list its ids.")


def _check_charsmap(charsmap: Any, where: str) -> None:
    """Check SentencePiece's normalization table, whose first number is the size that the library allocates."""
    try:
        content = base64.b64decode(charsmap, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise ModelError(f"{where}: precompiled_charsmap is not base64.") from None
    if content and int.from_bytes(content[:4], "little") > len(content) - 4:
        raise ModelError(f"{where}: precompiled_charsmap is shorter than its own length field says.")
