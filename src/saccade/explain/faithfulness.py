"""Faithfulness of attention: does the prediction depend on the tokens that a map attends to? By gradients and by deletion.

- *Gradients*: integrated gradients on the token embeddings (Sundararajan et al. 2017, arXiv 1703.01365). The score is the rank
  correlation between the weight of a token in the map and the absolute value of its attribution.
- *Deletion*: the most attended tokens are deleted, and the log-probability of the prediction drops. The score compares this
  drop with random deletions of the same size: 0 is the mean drop of random deletions, 1 the drop without the tokens that
  matter most, as measured by deleting each token by itself.

Both are about 0 for a map that points at random tokens, near 1 for one that points at the tokens that matter, and below 0 for
one that points away from them. The two are reported separately, because they can disagree. Attention is often not faithful by
either of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.data import Batch, Text
from saccade.decoding.config import GenerationConfig
from saccade.decoding.loop import teacher_forced_logits
from saccade.errors import ModelError, UsageError
from saccade.explain.inputs import LookInput, RawInput, make_input, open_with_task
from saccade.explain.look import eval_mode, look_at
from saccade.explain.maps import AttentionMap, AttentionMaps
from saccade.explain.target import make_target
from saccade.metrics import spearman
from saccade.models.model import Model
from saccade.parts.embeddings import TokenEmbedding

INTEGRATION_STEPS = 32  # between the baseline and the embeddings
RANDOM_DELETIONS = 48  # samples for the mean drop of random deletions
DELETED_FRACTION = 0.2  # fraction of the tokens that is deleted
WEAK_THRESHOLD, STRONG_THRESHOLD = 0.3, 0.6
MIN_LOGPROB = -30.0  # lower log-probabilities count as this one
MAX_DELETIONS_PER_BATCH = 64  # batch size: deletions in one forward pass


@dataclass(frozen=True)
class Faithfulness:
    """How well a head agrees with what the prediction depends on; nan if the input has too few tokens to tell."""

    title: str
    gradient_correlation: float
    deletion_score: float

    @property
    def label(self) -> str:
        """The evidence as a sentence."""
        known = [value for value in (self.gradient_correlation, self.deletion_score) if value == value]
        if not known:
            return "no evidence: the input has too few tokens"
        grade = (
            "good"
            if min(known) >= STRONG_THRESHOLD
            else "weak"
            if max(known) < WEAK_THRESHOLD
            else "mixed"
            if min(known) < WEAK_THRESHOLD
            else "some"
        )
        clauses = [
            clause
            for clause in (_describe_deletion(self.deletion_score), _describe_gradients(self.gradient_correlation))
            if clause
        ]
        return f"{grade} evidence: {(', but ' if grade == 'mixed' else ', and ').join(clauses)}"

    def __str__(self) -> str:
        return (
            f"{self.title}: gradients {self.gradient_correlation:.2f}, deletion {self.deletion_score:.2f}; {self.label}"
        )


def _describe_deletion(value: float) -> str:
    """The deletion score in words; "" for nan."""
    if value != value:
        return ""
    if value >= STRONG_THRESHOLD:
        return "the prediction changes when the attended tokens are removed"
    if value >= WEAK_THRESHOLD:
        return "the prediction changes somewhat more without the attended tokens than without random ones"
    if value > -WEAK_THRESHOLD:
        return "removing the attended tokens changes the prediction no more than removing random ones"
    return "removing the attended tokens changes the prediction less than removing random ones"


def _describe_gradients(value: float) -> str:
    """The gradient correlation in words; "" for nan."""
    if value != value:
        return ""
    if value >= STRONG_THRESHOLD:
        return "gradients point at the same tokens"
    if value >= WEAK_THRESHOLD:
        return "gradients point in part at the same tokens"
    return "gradients do not point at the same tokens" if value > -WEAK_THRESHOLD else "gradients point at other tokens"


@dataclass(frozen=True)
class TokenAttributions:
    """What a prediction depends on: for each token that can be deleted, its attribution and the effect of deleting it."""

    look_input: LookInput
    attention_maps: AttentionMaps
    score_answer: Callable[[Batch], Tensor]  # the log-probability of the prediction for each row of a batch
    token_positions: tuple[int, ...]  # positions of the tokens that are not special
    integrated_gradients: np.ndarray  # (tokens,)
    leave_one_out: np.ndarray  # (tokens,) drop of the log-probability without each token


def attribute_tokens(
    model: Model | str,
    input: RawInput,
    decoding: GenerationConfig = GenerationConfig(),  # noqa: B008 - frozen
) -> TokenAttributions:
    """Compute the token attributions of a prediction once; `measure_faithfulness` then compares any map with them."""
    return attribute_look_input(make_input(*open_with_task(model), input), decoding)


def attribute_look_input(
    look_input: LookInput,
    decoding: GenerationConfig = GenerationConfig(),  # noqa: B008 - frozen
) -> TokenAttributions:
    """Compute token attributions for an input that `make_input` has prepared."""
    if not isinstance(look_input.batch.source, Text):
        raise UsageError(
            f"Faithfulness is measured by deleting tokens of a text, but {look_input.model.family.name} reads no text."
        )
    attention_maps = look_at(look_input, decoding=decoding)
    with eval_mode(look_input.model):
        if look_input.is_autoregressive:
            look_input = replace(look_input, target=tuple(make_target(look_input, decoding).ids))
        score = _make_scorer(look_input)
        positions = tuple(
            i
            for i, special in enumerate(look_input.input_axis.special_tokens_mask)
            if not special or not any(look_input.texts)
        )
        leave_one_out = _score_drops(look_input, score, [[position] for position in positions])
    gradients = _integrated_gradients(look_input, score)[list(positions)]
    return TokenAttributions(look_input, attention_maps, score, positions, gradients, leave_one_out)


def select_testable_maps(attributions: TokenAttributions) -> list[AttentionMap]:
    """The maps whose keys are the input tokens, so that these can be deleted."""
    return [
        m
        for m in attributions.attention_maps.maps
        if m.kind in ("self", "cross") and m.key.kind in ("input", "decoder_input")
        if m.side != "decoder" or m.kind == "cross"
        if len(m.key) >= len(attributions.look_input.input_axis)
    ]


def measure_faithfulness(
    attributions: TokenAttributions, attention_map: AttentionMap, head: int | None = None, *, seed: int = 0
) -> Faithfulness:
    """Measure the faithfulness of one head of a map (by its index), or of the mean of all heads."""
    weights = attention_map.mean if head is None else attention_map.to_dense()[head]
    title = f"{attention_map.title}, {'mean of the heads' if head is None else attention_map.head_name(head)}"
    if len(attention_map.key) < len(attributions.look_input.input_axis):
        raise UsageError(
            f"{title} has {len(attention_map.key)} keys, but the input has {len(attributions.look_input.input_axis)} tokens; "
            "look without `reduce`."
        )
    token_weights = weights.mean(0).numpy()[list(attributions.token_positions)]
    return measure_weights_faithfulness(attributions, token_weights, title=title, seed=seed)


def measure_weights_faithfulness(
    attributions: TokenAttributions, weights: np.ndarray, *, title: str, seed: int = 0
) -> Faithfulness:
    """Measure the faithfulness of any weights of the tokens in `attributions.token_positions`."""
    if len(attributions.token_positions) < 3:
        return Faithfulness(title, float("nan"), float("nan"))
    return Faithfulness(
        title,
        _rank_correlation(weights, np.abs(attributions.integrated_gradients)),
        _measure_deletion(attributions, weights, seed),
    )


def _rank_correlation(weights: np.ndarray, sizes: np.ndarray) -> float:
    return spearman(sizes, weights, bootstrap_samples=1).value


def _measure_deletion(attributions: TokenAttributions, weights: np.ndarray, seed: int) -> float:
    """The drop without the attended tokens, scaled so that random deletions score 0 and the best deletion scores 1."""
    positions = np.array(attributions.token_positions)
    count = max(1, round(DELETED_FRACTION * len(positions)))
    generator = np.random.default_rng(seed)
    random = [generator.choice(positions, count, replace=False).tolist() for _ in range(RANDOM_DELETIONS)]
    largest = [
        positions[np.argsort(-values, kind="stable")[:count]].tolist()
        for values in (weights, attributions.leave_one_out)
    ]
    with eval_mode(attributions.look_input.model):
        drops = _score_drops(attributions.look_input, attributions.score_answer, [*largest, *random])
    chance, best = float(drops[2:].mean()), float(max(drops[1], drops[0]))
    spread = best - chance
    return float(np.clip((drops[0] - chance) / spread, -1, 1)) if spread > 1e-6 else 0.0


def _score_drops(look_input: LookInput, score: Callable[[Batch], Tensor], deletions: list[list[int]]) -> np.ndarray:
    """The drop of the log-probability of the prediction for each list of deleted tokens."""
    source = look_input.batch.source
    assert isinstance(source, Text)
    full = float(score(look_input.batch)[0])
    drops: list[float] = []
    for start in range(0, len(deletions), MAX_DELETIONS_PER_BATCH):
        chunk = deletions[start : start + MAX_DELETIONS_PER_BATCH]
        keep = torch.ones(len(chunk), source.tokens.size(1), dtype=torch.bool)
        for row, tokens in enumerate(chunk):
            keep[row, tokens] = False  # positions count kept tokens only, so masking is the same as deleting
        text = Text(
            *(None if x is None else x.expand(len(chunk), -1) for x in (source.tokens, None, source.segment_ids))  # type: ignore[arg-type]
        )
        drops += (full - score(Batch(replace(text, keep=keep), items=look_input.batch.items * len(chunk)))).tolist()
    return np.array(drops)


def _make_scorer(look_input: LookInput) -> Callable[[Batch], Tensor]:
    """A function from a batch to the log-probability of the prediction in each row; for tags, the mean over tokens."""
    model: Any = look_input.model
    device = next(model.parameters()).device
    if look_input.is_autoregressive:
        target = torch.tensor([look_input.target], device=device)

        def score_target(batch: Batch) -> Tensor:
            rows = len(batch.source.tokens)  # type: ignore[union-attr]
            logits = teacher_forced_logits(model, Batch(batch.to(device).source, Text(target.expand(rows, -1))))
            return logits.log_softmax(-1).gather(-1, target.expand(rows, -1)[..., None]).sum((1, 2)).cpu()

        return score_target
    if model.head is None:
        raise ModelError(f"This {model.family.name} has no output head, so there is no prediction to explain.")
    predicted = _log_probabilities(model, model(look_input.batch.to(device))).argmax(
        -1
    )  # (1,), or (1, N) for N outputs

    def score_prediction(batch: Batch) -> Tensor:
        all_logprobs = _log_probabilities(model, model(batch.to(device)))
        index = predicted.expand(len(all_logprobs), *predicted.shape[1:])[..., None]
        logprobs = all_logprobs.gather(-1, index)[..., 0].clamp(min=MIN_LOGPROB)
        keep = batch.source.keep  # type: ignore[union-attr]
        if logprobs.dim() == 1 or logprobs.shape != batch.source.tokens.shape:  # type: ignore[union-attr]
            return logprobs.reshape(len(logprobs), -1).sum(1).cpu()
        is_token = torch.ones_like(logprobs) if keep is None else keep.to(logprobs)
        return ((logprobs * is_token).sum(1) / is_token.sum(1).clamp(min=1)).cpu()

    return score_prediction


def _log_probabilities(model: Model, scores: Tensor) -> Tensor:
    """Log-probabilities along the last axis: of labels, tags or tokens, or of the positions of a span's start and end."""
    if model.head_name == "span":
        return scores.transpose(1, 2).log_softmax(-1)
    if model.multi_label:
        return F.logsigmoid(scores)
    return scores.log_softmax(-1) if scores.size(-1) > 1 else scores  # a single output is a regression value


def _integrated_gradients(look_input: LookInput, score: Callable[[Batch], Tensor]) -> np.ndarray:
    """Integrated gradients of the prediction for the embeddings of the source tokens, (L,)."""
    model = look_input.model
    embedding = next((m for m in model.body.modules() if isinstance(m, TokenEmbedding)), None)
    if embedding is None:
        raise ModelError(f"{model.family.name} has no token embedding, so integrated gradients cannot be computed.")
    source = look_input.batch.source
    assert isinstance(source, Text)
    with eval_mode(model):
        vectors = embedding(source.tokens.to(embedding.vectors.weight.device))  # (1, L, W)
        baseline = _baseline_vector(look_input, embedding).expand_as(vectors)
    total = torch.zeros_like(vectors)
    training = model.training
    model.eval()
    try:
        for step in range(INTEGRATION_STEPS):
            point = (baseline + (vectors - baseline) * (step + 0.5) / INTEGRATION_STEPS).detach().requires_grad_()
            with _ReplaceEmbeddings(embedding, point), torch.enable_grad():
                out = score(look_input.batch)[0]
                total += torch.autograd.grad(out, point)[0]
    finally:
        model.train(training)
    return (((vectors - baseline) * total / INTEGRATION_STEPS).sum(-1))[0].detach().cpu().numpy()


def _baseline_vector(look_input: LookInput, embedding: TokenEmbedding) -> Tensor:
    """The baseline of integrated gradients: the embedding of the mask token if there is one, else zero."""
    mask = None if look_input.model.tokenizer is None else look_input.model.tokenizer.mask_id
    weight = embedding.vectors.weight
    return (
        torch.zeros_like(weight[:1, None]) if mask is None else embedding(torch.tensor([[mask]], device=weight.device))
    )


class _ReplaceEmbeddings:
    """Replaces the embeddings of the source inside the block; later calls, which embed the target, are unchanged."""

    def __init__(self, embedding: TokenEmbedding, vectors: Tensor):
        self.embedding, self.vectors, self.has_replaced = embedding, vectors, False

    def __enter__(self) -> None:
        def swap(_: Any, __: Any, out: Tensor) -> Tensor:
            if self.has_replaced:
                return out
            self.has_replaced = True
            length = self.vectors.size(1)
            return torch.cat([self.vectors, out[:, length:]], dim=1) if out.size(1) > length else self.vectors

        self.handle = self.embedding.register_forward_hook(swap)

    def __exit__(self, *_: object) -> None:
        self.handle.remove()
