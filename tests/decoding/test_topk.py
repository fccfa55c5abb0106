"""How probable some of many scores are, against the definition, and what beams make of it."""

import math
from itertools import chain

import pytest
import torch

from saccade.data import Batch, Text
from saccade.decoding.beam import BeamConfig, beam_search
from saccade.decoding.stopping import StoppingCriteria
from saccade.decoding.topk import MAX_SCORES_PER_CHUNK, token_logprobs
from saccade.models.build import new
from saccade.models.families import gpt2


@pytest.mark.parametrize(
    ("rows", "vocab"), [(0, 7), (1, 1), (5, 31), (11, MAX_SCORES_PER_CHUNK // 4 + 3), (3, MAX_SCORES_PER_CHUNK + 1)]
)
def test_the_log_probability_of_some_is_that_of_the_definition(rows, vocab):
    chance = torch.Generator().manual_seed(vocab)
    scores, tokens = torch.randn(rows, vocab, generator=chance) * 20, torch.randint(vocab, (rows, 3), generator=chance)
    scores[1:2, ::3] = -math.inf
    found = token_logprobs(scores, tokens)
    wanted = scores.double() - scores.double().exp().sum(1, keepdim=True).log()
    torch.testing.assert_close(found.double(), wanted.gather(1, tokens), rtol=1e-5, atol=1e-5)
    deep = token_logprobs(scores.view(rows, 1, vocab), tokens.view(rows, 1, 3))
    assert deep.equal(found[:, None])


@pytest.mark.parametrize(
    "beams", [BeamConfig(3), BeamConfig(4, beam_groups=2, diversity_penalty=0.7)], ids=["together", "groups"]
)
def test_beams_score_the_same_with_a_rule_that_allows_all(beams):
    """With rules all log-probabilities are made, without them only those of what is chosen."""
    torch.manual_seed(2)
    model = new("gpt2", gpt2.Config(vocab=301, width=16, layers=1, heads=2, max_positions=32)).eval()
    batch = Batch(Text(torch.tensor([[5, 6, 7], [8, 9, 10]])))
    found, wanted = (
        beam_search(model, batch, StoppingCriteria(2, 9, processors=rules), beams, n_best=3)
        for rules in ((), (lambda scores, sofar: scores,))
    )
    for one, two in zip(chain.from_iterable(found), chain.from_iterable(wanted), strict=True):
        assert one.tokens == two.tokens
        assert one.score == pytest.approx(two.score, abs=1e-5)
        assert one.logprobs == pytest.approx(two.logprobs, abs=1e-5)
        assert one.processed_logprobs == pytest.approx(two.processed_logprobs, abs=1e-5)
