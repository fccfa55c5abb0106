"""A tokenizer.json from a stranger, checked before a library builds it: nothing in it may cost more than any real one."""

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
MAX_LIST_ENTRIES = 1_000  # of any list outside the vocabulary
MAX_COMPONENT_DEPTH = 20  # of parts in parts
MAX_GROWTH_FACTOR = (
    64  # how many times longer the replacements may make a text; published ones write one or two characters
)
MODEL_TYPES = ("BPE", "WordPiece", "WordLevel", "Unigram")


def check_tokenizer_json(spec: dict[str, Any], where: str) -> None:
    """Refuse a file with too many entries, with ids and tokens that do not agree, or with a pattern that can hang."""
    model = spec.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise ModelError(f"{where} has no model with a vocabulary; is it a tokenizer.json?")
    if model.get("type") is not None and model["type"] not in MODEL_TYPES:
        raise ModelError(
            f"{where}: a model of the type {abbreviate(model['type'])} is not read; {', '.join(MODEL_TYPES)} are."
        )
    check_vocab(model["vocab"], where)
    check_merges(model.get("merges") or [], where)
    added = spec.get("added_tokens") or []
    _check_added_tokens(added, model["vocab"], where)
    word = model.get("max_input_chars_per_word", 100)
    if type(word) is not int or not 0 < word <= MAX_WORD_CHARACTERS:
        raise ModelError(
            f"{where}: max_input_chars_per_word is {abbreviate(word)}; 1 to {MAX_WORD_CHARACTERS} is read, for the time is "
            "quadratic."
        )
    _check_unknown_token(model, added, where)
    parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    _check_components([(spec.get(part), 0) for part in parts], where)


def check_vocab(vocab: dict | list, where: str) -> None:
    """Refuse a vocabulary that is not tokens with ids of their own, or (Unigram) tokens with scores."""
    if not vocab:
        raise ModelError(f"{where}: the vocabulary is empty.")
    if len(vocab) > MAX_VOCAB:
        raise ModelError(f"{where} has {len(vocab):,} tokens; at most {MAX_VOCAB:,} are read.")
    if isinstance(vocab, dict):
        whole = (
            set(map(type, vocab.values())) == {int} and 0 <= min(vocab.values()) <= max(vocab.values()) < 10 * MAX_VOCAB
        )
        for token, id in () if whole else vocab.items():  # all at a glance, and one by one only to name the one
            if type(id) is not int or not 0 <= id < 10 * MAX_VOCAB:
                raise ModelError(
                    f"{where}: the token {abbreviate(token)} has the id {abbreviate(id)}; a number from 0 is needed."
                )
        _check_unique_ids(vocab, where)
    for i, entry in enumerate(vocab if isinstance(vocab, list) else ()):
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
            raise ModelError(f"{where}: entry {i} of the vocabulary is not a pair of a token and a score.")
        if type(entry[1]) not in (int, float) or not math.isfinite(entry[1]):
            raise ModelError(
                f"{where}: the token {abbreviate(entry[0])} has the score {abbreviate(entry[1])}, which is no number."
            )
    longest = max(map(len, vocab) if isinstance(vocab, dict) else (len(token) for token, _ in vocab))
    if longest > MAX_TOKEN_CHARACTERS:
        raise ModelError(f"{where}: a token has {longest:,} characters; at most {MAX_TOKEN_CHARACTERS:,} are read.")


def _check_unique_ids(vocab: dict[str, int], where: str) -> None:
    """Two tokens with one id would be one token with two names."""
    if len(set(vocab.values())) == len(vocab):
        return
    names: dict[int, str] = {}
    for token, id in vocab.items():
        other = names.setdefault(id, token)
        if other != token:
            raise ModelError(f"{where}: the tokens {abbreviate(other)} and {abbreviate(token)} have the same id, {id}.")


def check_merges(merges: Any, where: str) -> None:
    """Refuse merges that are not pairs of tokens."""
    if not isinstance(merges, list):
        raise ModelError(f"{where}: merges is a {type(merges).__name__}; a list of pairs is needed.")
    if len(merges) > MAX_MERGES:
        raise ModelError(f"{where} has {len(merges):,} merges; at most {MAX_MERGES:,} are read.")
    for i, pair in enumerate(merges):
        words = pair.split(" ", 1) if isinstance(pair, str) else pair
        if not isinstance(words, list) or len(words) != 2 or not all(isinstance(word, str) for word in words):
            raise ModelError(f"{where}: merge {i} is {abbreviate(pair)}; two tokens are needed.")


def _check_added_tokens(added_tokens: Any, vocab: dict | list, where: str) -> None:
    """Added tokens have a text, an id of their own, and the id that the vocabulary gives them if it has them."""
    if not isinstance(added_tokens, list) or not all(
        isinstance(x, dict) and isinstance(x.get("content"), str) for x in added_tokens
    ):
        raise ModelError(f"{where}: added_tokens is not a list of tokens with a content.")
    if len(added_tokens) > MAX_ADDED_TOKENS:
        raise ModelError(f"{where} has {len(added_tokens):,} added tokens; at most {MAX_ADDED_TOKENS:,} are read.")
    known: dict[str, int] = dict(vocab) if isinstance(vocab, dict) else {}
    for token in added_tokens:
        name, id = token["content"], token.get("id")
        if not 0 < len(name) <= MAX_TOKEN_CHARACTERS:
            raise ModelError(
                f"{where}: an added token has {len(name):,} characters; 1 to {MAX_TOKEN_CHARACTERS:,} are read."
            )
        if id is not None and (type(id) is not int or not 0 <= id < 10 * MAX_VOCAB):
            raise ModelError(
                f"{where}: the added token {abbreviate(name)} has the id {abbreviate(id)}; a number from 0 is needed."
            )
        if id is not None and known.setdefault(name, id) != id:
            raise ModelError(f"{where}: the token {abbreviate(name)} has two ids, {known[name]} and {id}.")
    if isinstance(vocab, dict):
        _check_unique_ids(known, where)


def _check_unknown_token(model: dict[str, Any], added_tokens: list[dict[str, Any]], where: str) -> None:
    """The token for what is unknown has to be known itself."""
    vocab, name, id = model["vocab"], model.get("unk_token"), model.get("unk_id")
    known = {token["content"] for token in added_tokens}
    if name is not None and isinstance(vocab, dict) and name not in vocab and name not in known:
        raise ModelError(f"{where}: the unknown token, {abbreviate(name)}, is not in the vocabulary.")
    if id is not None and (type(id) is not int or not 0 <= id < len(vocab)):
        raise ModelError(f"{where}: unk_id is {abbreviate(id)}; the vocabulary has {len(vocab):,} tokens.")


def _check_components(open_nodes: list[tuple[Any, int]], where: str) -> None:
    """The parts around the model: short lists, patterns that end, replacements that do not blow a text up."""
    growth = 1
    while open_nodes:
        node, depth = open_nodes.pop()
        if depth > 2 * MAX_COMPONENT_DEPTH:  # an object and a list for each part
            raise ModelError(f"{where} has parts in parts more than {MAX_COMPONENT_DEPTH} deep.")
        if isinstance(node, list | dict) and len(node) > MAX_LIST_ENTRIES:
            raise ModelError(
                f"{where} has a list of {len(node):,} entries outside the vocabulary; at most {MAX_LIST_ENTRIES:,} are read."
            )
        if isinstance(node, dict):
            open_nodes += [(inner, depth + 1) for inner in node.values()]
            _check_component(node, where)
            for key in ("content", "prepend"):
                growth *= max(1, len(node[key])) if isinstance(node.get(key), str) else 1
        elif isinstance(node, list):
            open_nodes += [(inner, depth + 1) for inner in node]
    if growth > MAX_GROWTH_FACTOR:
        raise ModelError(f"{where} can make a text {growth:,} times longer; at most {MAX_GROWTH_FACTOR} times is read.")


def _check_component(node: dict[str, Any], where: str) -> None:
    """What one part can do wrong by itself."""
    if isinstance(node.get("Regex"), str):
        check_regex(node["Regex"], where)
    if "precompiled_charsmap" in node:
        _check_charsmap(node["precompiled_charsmap"], where)
    if node.get("type") == "FixedLength" and (type(node.get("length")) is not int or node["length"] < 1):
        raise ModelError(
            f"{where} cuts pieces of the length {abbreviate(node.get('length'))}; a number from 1 is needed."
        )
    if node.get("type") == "TemplateProcessing":
        _check_template(node, where)


def _check_template(node: dict[str, Any], where: str) -> None:
    """Every token that a template puts around a text is one whose ids it gives."""
    known: Any = node.get("special_tokens")
    sides: list[Any] = [node.get("single"), node.get("pair")]
    for slot in [slot for side in sides if isinstance(side, list) for slot in side]:
        token = slot.get("SpecialToken") if isinstance(slot, dict) else None
        name = token.get("id") if isinstance(token, dict) else None
        if name is not None and (not isinstance(known, dict) or name not in known):
            raise ModelError(f"{where} puts {abbreviate(name)} around a text and does not say which ids that has.")


def _check_charsmap(charsmap: Any, where: str) -> None:
    """SentencePiece's table of replacements: its first number says how long it is, and a library allocates that much."""
    try:
        content = base64.b64decode(charsmap, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise ModelError(f"{where}: precompiled_charsmap is not base64.") from None
    if content and int.from_bytes(content[:4], "little") > len(content) - 4:
        raise ModelError(f"{where}: precompiled_charsmap is longer by its own account than the file has it.")
