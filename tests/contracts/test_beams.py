"""Beams and speculation for every writer: one beam is greedy, a batch is its rows alone, proposals change nothing."""

import pytest
import torch
from test_families import FROM_CODES, VOCAB, WRITERS, double, names, reads, rough, uneven_rows  # noqa: F401
from torch.testing import assert_close

from saccade.data import Batch, Text
from saccade.decoding import StoppingCriteria, generate, teacher_forced_logits
from saccade.decoding.beam import BeamConfig, beam_search
from saccade.decoding.speculative import DraftModel, PromptLookup, speculate
from saccade.models.capabilities import Modality

LIMIT = 6


def stop_of(family):
    return None if family.name in FROM_CODES else (5, 11)


def rows_of(family):
    """Two inputs of unequal length, and each of them alone."""
    together, alone = uneven_rows(family)
    batches = [together]
    if reads(family) is Modality.TEXT:
        batches.append(Batch(Text.pad([row.source.tokens[0].tolist() for row in alone], pad_left=True)))
    return batches, alone


@pytest.mark.parametrize("family", WRITERS, ids=names)
def test_one_beam_is_greedy(family, double):  # noqa: F811
    model = rough(family)
    for batch in rows_of(family)[0]:
        found = beam_search(
            model, batch, StoppingCriteria(stop_ids=stop_of(family), max_new_tokens=LIMIT), BeamConfig(1)
        )
        assert [one.tokens for (one,) in found] == generate(
            model, batch, stop_ids=stop_of(family), max_new_tokens=LIMIT
        )


@pytest.mark.parametrize("family", WRITERS, ids=names)
def test_a_batch_is_its_rows_alone_and_a_score_that_of_its_text(family, double):  # noqa: F811
    model, stop = rough(family), stop_of(family)
    together, alone = rows_of(family)
    wanted = [
        beam_search(model, one, StoppingCriteria(stop_ids=stop, max_new_tokens=LIMIT), BeamConfig(3), n_best=3)[0]
        for one in alone
    ]
    for batch in together:
        found = beam_search(
            model, batch, StoppingCriteria(stop_ids=stop, max_new_tokens=LIMIT), BeamConfig(3), n_best=3
        )
        for mine, theirs in zip(found, wanted, strict=True):
            assert [one.tokens for one in mine] == [one.tokens for one in theirs]
            assert_close([one.score for one in mine], [one.score for one in theirs])
    for batch, texts in zip(alone, wanted, strict=True):
        for one in texts:
            with torch.no_grad():
                scores = teacher_forced_logits(model, Batch(batch.source, Text.pad([one.tokens or [3]]))).log_softmax(
                    -1
                )[0]
            logs = scores[: len(one.tokens)].gather(-1, torch.tensor(one.tokens, dtype=torch.long)[:, None])[:, 0]
            assert_close(logs.tolist(), one.logprobs)
            length = len(one.tokens) + (one.stop_logprob is not None)
            assert one.score == pytest.approx((sum(one.logprobs) + (one.stop_logprob or 0.0)) / length)


@pytest.mark.parametrize("family", WRITERS, ids=names)
def test_proposals_change_nothing(family, double):  # noqa: F811
    model, (batch, *_) = rough(family), rows_of(family)[0]
    wanted = generate(model, batch, stop_ids=stop_of(family), max_new_tokens=LIMIT)
    wrong = lambda model, one: lambda written, count: [VOCAB - 1 - written[-1] % 7] * count
    for drafter in (PromptLookup(), DraftModel(model), wrong):
        assert (
            speculate(model, batch, StoppingCriteria(stop_ids=stop_of(family), max_new_tokens=LIMIT), drafter) == wanted
        )
