"""CTC against brute force: every path of a few frames is listed, and texts, losses, beams and alignments follow from the list."""

import itertools
import math

import numpy as np
import pytest
import torch

from saccade.data import Batch, Text
from saccade.decoding.ctc import collapse_path, ctc_align, ctc_beam_search, ctc_greedy
from saccade.tasks.speech.transcribe import ctc_loss

FRAMES, VOCAB, BLANK = 5, 3, 0


def scores(seed, frames=FRAMES, sharp=1.0):
    logits = torch.randn(frames, VOCAB, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * sharp
    return logits.log_softmax(-1).numpy()


def all_texts(log_probs):
    """The probability of every text, and its most probable path, by listing all paths."""
    totals, best = {}, {}
    for path in itertools.product(range(VOCAB), repeat=len(log_probs)):
        probability = math.exp(sum(log_probs[t, token] for t, token in enumerate(path)))
        text = tuple(collapse_path(path, BLANK))
        totals[text] = totals.get(text, 0.0) + probability
        if probability > best.get(text, (0.0, ()))[0]:
            best[text] = (probability, path)
    return totals, best


@pytest.mark.parametrize("seed", range(8))
def test_a_wide_beam_finds_every_text_with_its_probability(seed):
    log_probs = scores(seed)
    totals, _ = all_texts(log_probs)
    found = ctc_beam_search(log_probs, BLANK, 1_000, token_min_log_prob=-math.inf)
    assert {h.tokens: math.exp(h.log_prob) for h in found} == pytest.approx(totals)
    assert found[0].tokens == max(totals, key=totals.__getitem__)
    assert sum(totals.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(8))
def test_a_narrow_beam_is_no_worse_than_the_best_path(seed):
    log_probs = scores(seed, sharp=2.0)
    totals, best = all_texts(log_probs)
    greedy = tuple(ctc_greedy(log_probs, BLANK))
    assert best[greedy][0] == pytest.approx(math.exp(log_probs.max(1).sum()))
    narrow = ctc_beam_search(log_probs, BLANK, 4, token_min_log_prob=-math.inf)[0]
    assert totals[narrow.tokens] >= totals[greedy] - 1e-12
    assert narrow.score == narrow.log_prob


@pytest.mark.parametrize("seed", range(4))
def test_a_language_model_decides_as_in_the_list_of_all_texts(seed):
    log_probs, weight, bonus, end = scores(seed), 0.7, 0.3, 2
    table = np.log(np.random.default_rng(seed).dirichlet(np.ones(VOCAB), VOCAB + 1))  # by the last token

    def after(prefix):
        return table[prefix[-1] if prefix else VOCAB]

    totals, _ = all_texts(log_probs)

    def total(text):
        lm = sum(after(text[:i])[token] for i, token in enumerate(text)) + after(text)[end]
        return math.log(totals[text]) + weight * lm + bonus * len(text)

    found = ctc_beam_search(
        log_probs, BLANK, 1_000, score_tokens=after, lm_weight=weight, length_bonus=bonus, end_token=end,
        token_min_log_prob=-math.inf,
    )  # fmt: skip
    assert {h.tokens: h.score for h in found} == pytest.approx({text: total(text) for text in totals})


@pytest.mark.parametrize("seed", range(6))
def test_an_alignment_is_the_most_probable_path_of_its_text(seed):
    log_probs = scores(seed)
    for text, (probability, _) in all_texts(log_probs)[1].items():
        spans = ctc_align(log_probs, text, BLANK)
        path = [BLANK] * FRAMES
        for token, (start, end) in zip(text, spans, strict=True):
            assert start < end
            path[start:end] = [token] * (end - start)
        assert tuple(collapse_path(path, BLANK)) == text
        assert math.exp(sum(log_probs[t, token] for t, token in enumerate(path))) == pytest.approx(probability)


def test_a_text_that_does_not_fit_has_no_alignment():
    with pytest.raises(ValueError, match="4 tokens do not fit into 5 frames"):
        ctc_align(scores(0), [1, 1, 1, 1], BLANK)
    assert ctc_align(scores(0), [], BLANK) == []


def test_the_loss_is_that_of_the_list_of_all_paths_without_padding_and_without_the_end():
    end, texts, lengths = 2, [[1, 1], [1], []], [5, 3, 4]
    logits = torch.stack([torch.from_numpy(scores(seed)) for seed in range(3)])
    keep = torch.arange(5) < torch.tensor(lengths)[:, None]
    batch = Batch(Text(torch.zeros(3, 1, dtype=torch.long)), Text.pad([[*text, end] for text in texts]))
    expected = -sum(
        math.log(all_texts(scores(seed)[:length])[0][tuple(text)])
        for seed, (text, length) in enumerate(zip(texts, lengths, strict=True))
    )
    noisy = torch.where(keep[..., None], logits, torch.randn(logits.shape))
    assert float(ctc_loss(noisy, keep, batch, BLANK)) == pytest.approx(expected, rel=1e-5)


def test_a_text_that_is_too_long_for_its_recording_counts_nothing():
    batch = Batch(Text(torch.zeros(1, 1, dtype=torch.long)), Text.pad([[1, 1, 1, 1, 2]]))
    logits = torch.zeros(1, 5, VOCAB, requires_grad=True)
    loss = ctc_loss(logits, None, batch, BLANK)
    loss.backward()
    assert loss.item() == 0.0
    assert logits.grad is not None
    assert not logits.grad.any()
