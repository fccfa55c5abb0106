"""Train a tokenizer: byte-level BPE, WordPiece, Unigram, words, characters or bytes.

Training is deterministic: the same texts always give the same tokenizer. Texts may be an iterator over more text than fits in
memory.

>>> tokenizer = train_tokenizer(["low lower lowest"] * 3, "bpe", 270)
>>> [tokenizer.id_to_token(id) for id in tokenizer.encode("lowest").ids]
['low', 'e', 'st']
>>> tokenizer.decode(tokenizer.encode("naïve 😀").ids)
'naïve 😀'
"""

import difflib
import io
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import sentencepiece
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Built

from saccade.errors import ModelError
from saccade.text.backends.hf_tokenizers import HFBackend
from saccade.text.loading.safe_files import MAX_VOCAB, as_model_error
from saccade.text.special_tokens import ROLE_KEYS, TEMPLATES
from saccade.text.tokenizer import Tokenizer

# The special tokens of a trained tokenizer by role, in the order of their ids.
SPECIAL_TOKENS = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>", "mask": "<mask>"}
MAX_TRAINING_CHUNKS = 1_000_000  # WordPiece and Unigram train on a random sample of this many chunks of text
MAX_CHUNK_CHARACTERS = 1_000
MAX_WORD_CHARACTERS = 1_000  # longer words are cut in training: BPE takes quadratic time in the length of a word


def train_tokenizer(
    texts: Iterable[str],
    kind: str,
    vocab: int | None = None,
    *,
    special_tokens: dict[str, str] = SPECIAL_TOKENS,
    extra_special_tokens: Sequence[str] = (),
    token_template: str = "none",
) -> Tokenizer:
    """Train a tokenizer, one of `TOKENIZER_KINDS`, with a vocabulary size of at most `vocab`, special tokens included.

    `special_tokens` are the special tokens by role, `extra_special_tokens` are more of them without a role, and
    `token_template` is the name of the special token template, a key of `TEMPLATES`. `vocab` is optional for characters (the
    default is every character in the texts), and is fixed for bytes.
    """
    _check_known(kind, TOKENIZER_KINDS, "kind of tokenizer")
    _check_known(token_template, TEMPLATES, "template")
    for role in [*special_tokens, *TEMPLATES[token_template].list_required_roles()]:
        _check_known(role, ROLE_KEYS, "role")
    missing = sorted(TEMPLATES[token_template].list_required_roles() - special_tokens.keys())
    if missing:
        raise ModelError(
            f"The template {token_template!r} needs the roles {', '.join(missing)}; add them to `special_tokens`."
        )
    if isinstance(texts, str):
        raise ModelError("Texts must be a list or an iterator of strings; got one string. Put it in a list.")
    names = list(dict.fromkeys([*special_tokens.values(), *extra_special_tokens]))
    with as_model_error(f"Training a {kind} tokenizer with {vocab} ids failed"):
        built = TOKENIZER_KINDS[kind](iter(texts), vocab, names)
        built.add_special_tokens(names)
    roles = {role: id for role, name in special_tokens.items() if (id := built.token_to_id(name)) is not None}
    if TEMPLATES[token_template].list_required_roles():
        single, pair = TEMPLATES[token_template].to_hf_template(special_tokens)
        used = sorted({(special_tokens[role], roles[role]) for role in TEMPLATES[token_template].list_required_roles()})
        built.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=used)
    return Tokenizer(HFBackend(json.loads(built.to_str()), f"The {kind} tokenizer"), roles)


def _train_bpe(texts: Iterator[str], vocab: int | None, special_tokens: list[str]) -> Built:
    """Byte-level BPE: merge the most frequent pair of tokens repeatedly (Sennrich et al. 2016; bytes: Radford et al. 2019)."""
    built = Built(models.BPE())
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.FixedLength(MAX_WORD_CHARACTERS)])
    built.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_check_vocab_size(vocab, len(special_tokens) + 256),
        special_tokens=special_tokens,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    built.train_from_iterator(texts, trainer)
    built.pre_tokenizer = words
    return built


def _train_wordpiece(texts: Iterator[str], vocab: int | None, special_tokens: list[str]) -> Built:
    """WordPiece: split words from the left into the longest known pieces; ## marks a piece inside a word (Wu et al. 2016).

    The vocabulary is trained by BPE within words, as is usual since BERT.
    """
    size = _check_vocab_size(vocab, len(special_tokens) + 1)
    built = Built(models.WordPiece(unk_token=_find_unknown_token(special_tokens)))
    built.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    built.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    trained_pieces = [
        piece
        for piece, _ in _train_sentencepiece(
            (_separate_words(built, text) for text in texts), "bpe", size - len(special_tokens)
        )
    ]
    characters = sorted({character for piece in trained_pieces for character in piece} - {"▁"})
    pieces = [piece[1:] if piece.startswith("▁") else f"##{piece}" for piece in trained_pieces if piece != "▁"]
    tokens = list(dict.fromkeys([*special_tokens, *characters, *(f"##{c}" for c in characters), *pieces]))
    if len(tokens) - len(pieces) > size:
        raise ModelError(
            f"The texts have {len(characters)} different characters, and each needs two ids; raise `vocab` above {size}."
        )
    built.model = models.WordPiece(
        {token: id for id, token in enumerate(tokens[:size])}, unk_token=_find_unknown_token(special_tokens)
    )
    return built


def _train_unigram(texts: Iterator[str], vocab: int | None, special_tokens: list[str]) -> Built:
    """Unigram: pieces with probabilities; a text is split into the most probable sequence of pieces (Kudo 2018)."""
    size = _check_vocab_size(vocab, len(special_tokens) + 1)
    unknown = special_tokens.index(_find_unknown_token(special_tokens))
    normalizer = normalizers.NFKC()  # Python's takes quadratic time in the number of marks on a letter
    normalized = (normalizer.normalize_str(text) for text in texts)
    pieces = _train_sentencepiece(normalized, "unigram", size - len(special_tokens))
    built = Built(models.Unigram([(name, 0.0) for name in special_tokens] + pieces, unknown, byte_fallback=False))
    built.normalizer = normalizer
    built.pre_tokenizer = pre_tokenizers.Metaspace()
    built.decoder = decoders.Metaspace()
    return built


def _train_sentencepiece(texts: Iterator[str], kind: str, size: int) -> list[tuple[str, float]]:
    """Pieces and scores trained by SentencePiece: the trainers of `tokenizers` for these two kinds are not deterministic."""
    model_file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(_reservoir_sample(_chunk_lines(texts), MAX_TRAINING_CHUNKS)),
        model_writer=model_file,
        model_type=kind,
        vocab_size=size + 1,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        unk_id=0,
        bos_id=-1,
        eos_id=-1,
        pad_id=-1,
        max_sentence_length=8 * MAX_CHUNK_CHARACTERS,
        num_threads=1,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_proto=model_file.getvalue())
    return [(model.id_to_piece(i), model.get_score(i)) for i in range(1, len(model))]


def _separate_words(built: Built, text: str) -> str:
    """The text with spaces between its words and punctuation marks, split as by BERT."""
    words = built.pre_tokenizer.pre_tokenize_str(built.normalizer.normalize_str(text))
    return " ".join(word for word, _ in words)


def _train_words(texts: Iterator[str], vocab: int | None, special_tokens: list[str]) -> Built:
    """Words and punctuation marks; those that are not among the most frequent become the unknown token."""
    built = Built(models.WordLevel(unk_token=_find_unknown_token(special_tokens)))
    words = pre_tokenizers.Whitespace()
    too_long = pre_tokenizers.Split(  # with (?m) the dot also matches a line feed
        Regex(f"(?m).{{{MAX_WORD_CHARACTERS + 1},}}"), "removed"
    )
    built.pre_tokenizer = pre_tokenizers.Sequence([words, too_long])
    size = _check_vocab_size(vocab, len(special_tokens) + 1)
    built.train_from_iterator(
        texts, trainers.WordLevelTrainer(vocab_size=size, special_tokens=special_tokens, show_progress=False)
    )
    built.pre_tokenizer = words
    return built


def _train_characters(texts: Iterator[str], vocab: int | None, special_tokens: list[str]) -> Built:
    """One id for each character, with byte fallback for unseen ones, so that every string is decoded without loss."""
    max_characters = _check_vocab_size(vocab or MAX_VOCAB, len(special_tokens) + 256) - len(special_tokens) - 256
    counts = Counter[str]()
    for text in texts:
        counts.update(text)
    frequent = sorted(counts, key=lambda character: (-counts[character], character))[:max_characters]
    tokens = [
        *special_tokens,
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *(character for character in frequent if character not in special_tokens),
    ]
    built = Built(models.BPE({token: id for id, token in enumerate(tokens)}, [], byte_fallback=True))
    built.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return built


def _train_bytes(texts: Iterator[str], vocab: int | None, special_tokens: list[str]) -> Built:
    """The 256 bytes of UTF-8: nothing is trained, and no text is unknown."""
    size = len(special_tokens) + 256
    if vocab not in (None, size):
        raise ModelError(f"A bytes tokenizer with these special tokens has {size} ids, not {vocab}; leave `vocab` out.")
    tokens = special_tokens + _make_byte_alphabet()
    built = Built(models.BPE({token: id for id, token in enumerate(tokens)}, []))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built.decoder = decoders.ByteLevel()
    return built


TOKENIZER_KINDS: dict[str, Callable[[Iterator[str], int | None, list[str]], Built]] = {
    "bpe": _train_bpe,
    "wordpiece": _train_wordpiece,
    "unigram": _train_unigram,
    "words": _train_words,
    "characters": _train_characters,
    "bytes": _train_bytes,
}


def _make_byte_alphabet() -> list[str]:
    """GPT-2's characters for the bytes 0 to 255: printable bytes are themselves, the others the characters from 256 on."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = itertools.count(256)
    return [chr(byte if byte in visible else next(hidden)) for byte in range(256)]


def _check_vocab_size(vocab: int | None, minimum: int) -> int:
    if vocab is None or not minimum <= vocab <= MAX_VOCAB:
        raise ModelError(f"`vocab` is {vocab}; it must be a number from {minimum} to {MAX_VOCAB:,}.")
    return vocab


def _find_unknown_token(special_tokens: list[str]) -> str:
    for name in ("<unk>", "[UNK]"):
        if name in special_tokens:
            return name
    raise ModelError(
        f"This kind of tokenizer needs an unknown token: add <unk> or [UNK] to `special_tokens`, got {special_tokens}."
    )


def _chunk_lines(texts: Iterator[str]) -> Iterator[str]:
    """The lines of the texts, cut where they are longer than `MAX_CHUNK_CHARACTERS`."""
    for line in itertools.chain.from_iterable(text.splitlines() for text in texts):
        for start in range(0, len(line), MAX_CHUNK_CHARACTERS):
            yield line[start : start + MAX_CHUNK_CHARACTERS]


def _reservoir_sample(items: Iterator[str], count: int) -> list[str]:
    """A uniform random sample of at most `count` items (reservoir sampling), with a fixed seed."""
    sample, rng = list(itertools.islice(items, count)), random.Random(0)
    for seen, item in enumerate(items, start=count + 1):
        index = rng.randrange(seen)
        if index < count:
            sample[index] = item
    return sample


def _check_known(name: Any, table: dict[str, Any], what: str) -> None:
    if name not in table:
        nearest = difflib.get_close_matches(str(name), table, 1)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        raise ModelError(f"There is no {what} {name!r}; known are {', '.join(table)}.{hint}")
