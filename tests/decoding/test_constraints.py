"""What is written keeps to its expression or its list, always: by Python's `re`, by trying all, by a random model."""

import random
import re
from functools import cache
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data import Batch, Text
from saccade.decoding.constraints.processors import ChoiceConstraint, RegexConstraint
from saccade.decoding.constraints.regex_parser import parse_regex
from saccade.decoding.constraints.token_bytes import token_bytes
from saccade.decoding.logits_processors import BadWords, TokenHistory
from saccade.decoding.loop import generate
from saccade.decoding.sampling import Sampler
from saccade.parts.state import State
from saccade.text.train import TOKENIZER_KINDS, train_tokenizer

BATCH = Batch(Text.pad([[0], [0]]))
TEXTS = ["abc ba 1 é", "a1 b2 c3", "the cat sat on the mat"]
SIZES = {"bpe": 280, "unigram": 40, "wordpiece": 60, "words": 40}


@cache
def tokenizer_of(kind):
    return train_tokenizer(TEXTS * 3, kind, SIZES.get(kind))


class Chance:
    """A writer that knows nothing."""

    def __init__(self, vocab, seed):
        self.vocab, self.chance = vocab, torch.Generator().manual_seed(seed)

    def start(self, batch):
        return State(), batch.source

    def step(self, text, state):
        return 3 * torch.randn(*text.tokens.shape, self.vocab, generator=self.chance)


SINGLE = [("a", 1), ("é", 2), ("1", 1), (".", 1), (r"\d", 1), (r"\w", 1), (r"\W", 1), ("[a-cé]", 1), ("[^a]", 1)]
SINGLE += [("[é€]", 2), ("[€-😀]", 3), (r"\.", 1), ("[]-]", 1), (r"[^\d\s]", 1), ("😀", 4), ("", 0), (" ", 1)]


def joined(parts):
    return "".join(part for part, _ in parts), sum(least for _, least in parts)


def either(parts):
    return f"({'|'.join(part for part, _ in parts)})", min(least for _, least in parts)


def repeated(part, sign):
    return f"(?:{part[0]}){sign[0]}", part[1] * sign[1]


SIGNS = [("*", 0), ("+", 1), ("?", 0), ("{2}", 2), ("{1,3}", 1), ("{,2}", 0), ("{2,}", 2), ("*?", 0)]
EXPRESSIONS = st.recursive(  # with the bytes of the shortest text that matches
    st.sampled_from(SINGLE),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(joined),
        st.lists(inner, min_size=2, max_size=3).map(either),
        st.builds(repeated, inner, st.sampled_from(SIGNS)),
    ),
    max_leaves=6,
)


def fits(rule, text):
    """Whether a rule takes a text, byte by byte, and lets it end there."""
    row = [tokenizer_of("bytes").token_to_id(token) for token in tokens_of(text)]
    for at in range(len(row) + 1):
        scores = rule(torch.zeros(1, 300), TokenHistory([[0]], [row[:at]], 100))[0]
        if scores[row[at] if at < len(row) else rule.stop_ids[0]] != 0:
            return False
    return True


def tokens_of(text):
    tokenizer = tokenizer_of("bytes")
    return [tokenizer.id_to_token(token) for token in tokenizer.encode(text, add_special_tokens=False).ids]


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, st.lists(st.text("aé1. €😀b\n-]", max_size=6), min_size=5, max_size=5))
def test_an_expression_means_what_it_means_to_python(pair, texts):
    expression, _ = pair
    rule, known = RegexConstraint(expression, tokenizer_of("bytes")), re.compile(expression, re.ASCII)
    for text in texts:
        assert fits(rule, text) == bool(known.fullmatch(text)), (expression, text)


def attempt(model, tokenizer, limit, rule):
    """The rows, or what was said instead."""
    try:
        return generate(model, BATCH, stop_ids=tokenizer.eos_id, max_new_tokens=limit, processors=[rule]), ""
    except ValueError as error:
        return [], str(error)


@pytest.mark.parametrize("kind", ["bytes", "characters", "bpe", "unigram", "wordpiece", "words"])
@settings(max_examples=25, deadline=None)
@given(pair=EXPRESSIONS, limit=st.integers(1, 12), seed=st.integers(0, 99))
def test_what_is_written_always_matches(kind, pair, limit, seed):
    """Greedy on chance, two rows at once, with little room: finished or cut off, the text matches."""
    tokenizer, (expression, least) = tokenizer_of(kind), pair
    rule = RegexConstraint(expression, tokenizer)
    rows, said = attempt(Chance(tokenizer.vocab, seed), tokenizer, limit, rule)
    if kind == "bytes":
        assert bool(said) == (least > limit), expression
    if said:
        assert "max_new_tokens is" in said or "can be generated with the tokens" in said
    for row in rows:
        assert re.fullmatch(expression, tokenizer.decode(row), re.ASCII), (expression, tokenizer.decode(row))
        assert len(row) <= limit


def test_everything_that_matches_can_be_written():
    """Of a small language, each text comes up sooner or later, and no other."""
    tokenizer, expression = tokenizer_of("bytes"), "a?(b|é)c?"
    wanted = {first + middle + last for first in ("a", "") for middle in "bé" for last in ("c", "")}
    found = set()
    for seed in range(60):
        rows = generate(
            Chance(tokenizer.vocab, seed),
            BATCH,
            stop_ids=tokenizer.eos_id,
            max_new_tokens=4,
            processors=[RegexConstraint(expression, tokenizer)],
        )
        found.update(tokenizer.decode(row) for row in rows)
    assert found == wanted


def texts_of(tokenizer, tokens, most):
    """Every row of these tokens, up to a length, with its text."""
    return {row: tokenizer.decode(row) for n in range(most + 1) for row in product(tokens, repeat=n)}


@pytest.mark.parametrize("expression", ["cat( (sat|on))*", "the cat( on the mat)?", "(a1|c3)( c3)*", "cat|the mat"])
@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_tokens_of_whole_words_are_allowed_as_trying_all_says(expression, limit):
    """Such a vocabulary cannot write letter by letter, and a word later in a text has a space before it."""
    tokenizer = tokenizer_of("words")
    tokens = [tokenizer.token_to_id(word) for word in ("cat", "sat", "on", "the", "mat", "a1", "c3")]
    texts = texts_of(tokenizer, tokens, limit)
    matching = [row for row, text in texts.items() if re.fullmatch(expression, text)]
    rule = RegexConstraint(expression, tokenizer)
    if not matching:
        with pytest.raises(ValueError, match=rf"takes {limit + 1} tokens|takes \d tokens; max_new_tokens is {limit}\."):
            rule.check(tokenizer.vocab, limit)
        return
    rule.check(tokenizer.vocab, limit)
    for row in (row for row in texts if len(row) < limit):
        got = rule(torch.zeros(1, tokenizer.vocab), TokenHistory([[0]], [list(row)], limit))[0]
        allowed = {token for token in range(tokenizer.vocab) if got[token] == 0}
        wanted = {other[len(row)] for other in matching if len(other) > len(row) and other[: len(row)] == row}
        assert allowed == wanted | ({tokenizer.eos_id} if row in matching else set()), (row, limit)


@pytest.mark.parametrize("kind", list(TOKENIZER_KINDS))
def test_what_tokens_add_makes_the_text(kind):
    tokenizer, chance = tokenizer_of(kind), random.Random(2)
    spelled = token_bytes(tokenizer)
    usable = [token for token in range(tokenizer.vocab) if spelled.inner_bytes[token]]
    assert len(usable) == tokenizer.vocab - len(tokenizer.special_tokens)
    tried = 0
    for _ in range(500):
        row = chance.sample(usable, 4)
        found = spelled.start_bytes[row[0]] + b"".join(spelled.inner_bytes[token] for token in row[1:])
        try:
            text = found.decode()
        except UnicodeDecodeError:  # half a character somewhere
            continue
        tried += 1
        assert tokenizer.decode(row) == text
    assert tried > 20


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("^a", "position 0: ^ is an anchor, and the whole text has to match anyway"),
        ("a$", "anchor"),
        (r"\bcat", "a word boundary, which is not supported"),
        ("(?=a)b", "look-ahead is not supported"),
        ("(?<=a)b", "look-behind is not supported"),
        (r"(a)\1", "is a backreference"),
        ("(?P<name>a)", "a named group"),
        ("(?i)a", "a flag"),
        ("(?>a)", "an atomic group"),
        ("a*+", "possessive quantifiers"),
        ("a**", "multiple repeat"),
        ("*a", "nothing to repeat"),
        ("(a", "missing ), unterminated group"),
        ("a)", "unbalanced )"),
        ("[a", "missing ], unterminated character class"),
        ("[b-a]", "bad character range"),
        ("a{3,2}", "the minimum of {3,2} is above its maximum"),
        ("a{x}", "escape it to match the character"),
        ("a{2000}", "a count of 2000 is above the maximum of 1000"),
        ("\\", "ends with a backslash"),
        (r"\y", "bad escape"),
        (r"\x4", "needs 2 hexadecimal digits"),
        (r"\ud800", "is not a character"),
        (r"[^\x00-\U0010ffff]", "the character class is empty"),
        ("(" * 101, "more than 100 levels deep"),
        ("((a{99}){99}){99}", "more than 4,000 characters"),
    ],
)
def test_what_is_not_read_is_refused_by_name(expression, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_regex(expression)


def test_matching_refuses_what_cannot_be():
    tokenizer = tokenizer_of("words")
    with pytest.raises(ValueError, match="No text that matches 'dog' can be generated with the tokens"):
        generate(
            Chance(tokenizer.vocab, 0),
            BATCH,
            stop_ids=tokenizer.eos_id,
            max_new_tokens=9,
            processors=[RegexConstraint("dog", tokenizer)],
        )
    with pytest.raises(ValueError, match=r"takes 4 tokens; max_new_tokens is 3. Raise it"):
        RegexConstraint(r"\d{4}", tokenizer_of("bytes")).check(999, 3)
    bare = train_tokenizer([], "bytes", special_tokens={})
    with pytest.raises(ValueError, match="no end-of-sequence token"):
        RegexConstraint("a", bare)
    assert RegexConstraint("a", bare, stop_ids=[0]).stop_ids == (0,)
    plain = tokenizer_of("bytes")
    rules = [RegexConstraint("ab", plain), BadWords([[plain.token_to_id("b")]])]
    with pytest.raises(ValueError, match="forbid every token"):  # two rules that cannot both be kept
        generate(Chance(300, 0), BATCH, stop_ids=plain.eos_id, max_new_tokens=9, processors=rules)


def test_a_model_with_more_or_fewer_tokens_than_its_tokenizer():
    tokenizer = tokenizer_of("characters")
    rule = RegexConstraint("[ab]{3}", tokenizer)
    for vocab in (tokenizer.vocab + 7, tokenizer.vocab - 1):
        (row, _) = generate(Chance(vocab, 1), BATCH, stop_ids=tokenizer.eos_id, max_new_tokens=5, processors=[rule])
        assert re.fullmatch("[ab]{3}", tokenizer.decode(row))


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_only_rows_of_the_list_and_each_of_them(limit):
    rows = [[5], [5, 6], [5, 6, 7], [8, 8], [9, 5, 5, 5]]
    fitting = {tuple(row) for row in rows if len(row) <= limit}
    found = set()
    for seed in range(80):
        found.update(
            map(
                tuple,
                generate(
                    Chance(11, seed),
                    BATCH,
                    Sampler(seed=seed),
                    stop_ids=1,
                    max_new_tokens=limit,
                    processors=[ChoiceConstraint(rows, [1])],
                ),
            )
        )
    assert found == fitting


def test_texts_of_a_list():
    tokenizer, texts = tokenizer_of("bpe"), ["cat", "the cat", "the mat é", ""]
    found = set()
    for seed in range(40):
        rule = ChoiceConstraint.from_texts(texts, tokenizer)
        rows = generate(
            Chance(tokenizer.vocab, seed), BATCH, stop_ids=tokenizer.eos_id, max_new_tokens=12, processors=[rule]
        )
        found.update(tokenizer.decode(row) for row in rows)
    assert found == set(texts)


def test_lists_that_cannot_be_are_refused():
    tokenizer = tokenizer_of("words")
    for make, words in (
        (lambda: ChoiceConstraint([], [1]), "is empty, so nothing could be generated"),
        (lambda: ChoiceConstraint([[3]], []), "needs at least one stop token"),
        (lambda: ChoiceConstraint([[3, 1]], [1]), "contains a stop token"),
        (lambda: ChoiceConstraint.from_texts("cat", tokenizer), "must be a list of texts; got one string"),
        (lambda: ChoiceConstraint.from_texts(["cat", "dog"], tokenizer), "has no tokens for 'dog'"),
        (
            lambda: ChoiceConstraint([[3, 4, 5], [6, 6, 6, 6]], [1]).check(9, 2),
            "has 3 tokens, and max_new_tokens is 2",
        ),
        (
            lambda: ChoiceConstraint([[3, 40]], [1]).check(9, 2),
            "names the token 40; the model has tokens from 0 to 8",
        ),
        (lambda: ChoiceConstraint([[3]], [40]).check(9, 2), "names the token 40"),
        (lambda: RegexConstraint("cat", tokenizer, [99]).check(40, 9), r"RegexConstraint\('cat'\) names the token 99"),
    ):
        with pytest.raises(ValueError, match=words):
            make()
