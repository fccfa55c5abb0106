"""Does a map say what the answer depends on? Asked of gradients, and of the answer itself when tokens are taken away.

- *Gradients*: integrated gradients on the vectors of the tokens (Sundararajan et al. 2017, arXiv 1703.01365). The agreement is
  the rank correlation between a token's share of the map and the size of its attribution.
- *Deletion*: the tokens that the map points at most are taken out, and the answer moves. The agreement is how much further it
  moves than without as many random tokens, as a share of how much further it moves without those whose own absence moves it most.

Both are about 0 for a map that points anywhere, near 1 for one that points at what counts, and below 0 for one that points away
from it. Each is put into words by itself, so that one never speaks for the other. Attention is often neither.
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

INTEGRATION_STEPS = 32  # between nothing and the vectors as they are
RANDOM_DELETIONS = 48  # of random tokens
DELETED_FRACTION = 0.2  # of the tokens are taken away
WEAK_THRESHOLD, STRONG_THRESHOLD = 0.3, 0.6
MIN_LOGPROB = -30.0  # a log-probability below which nothing is worse
MAX_DELETIONS_PER_BATCH = 64  # deletions that are read at once


@dataclass(frozen=True)
class Faithfulness:
    """How well one head of a map agrees with what the answer depends on; nan where it cannot be told."""

    title: str
    gradient_correlation: float
    deletion_score: float

    @property
    def label(self) -> str:
        """The evidence in plain words."""
        known = [value for value in (self.gradient_correlation, self.deletion_score) if value == value]
        if not known:
            return "no evidence: there are too few tokens to tell"
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
    """What deletion says of a map, in words; nothing where it is nan."""
    if value != value:
        return ""
    if value >= STRONG_THRESHOLD:
        return "the answer changes when the tokens it points at are removed"
    if value >= WEAK_THRESHOLD:
        return "the answer changes somewhat more when the tokens it points at are removed than when random ones are"
    if value > -WEAK_THRESHOLD:
        return "removing the tokens it points at changes the answer no more than removing random ones"
    return "removing the tokens it points at changes the answer less than removing random ones"


def _describe_gradients(value: float) -> str:
    """What gradients say of a map, in words; nothing where the correlation is nan."""
    if value != value:
        return ""
    if value >= STRONG_THRESHOLD:
        return "gradients point at the same tokens"
    if value >= WEAK_THRESHOLD:
        return "gradients point at the same tokens in part"
    return "gradients do not point at the same tokens" if value > -WEAK_THRESHOLD else "gradients point at other tokens"


@dataclass(frozen=True)
class TokenAttributions:
    """What an answer depends on: for each token that may be taken away, its attribution and what its absence does."""

    look_input: LookInput
    attention_maps: AttentionMaps
    score_answer: Callable[[Batch], Tensor]  # a batch to how likely the answer is in each of its rows
    token_positions: tuple[int, ...]  # numbers of the tokens that are not special
    integrated_gradients: np.ndarray  # (tokens,)
    leave_one_out: np.ndarray  # (tokens,) how far the answer falls without each


def attribute_tokens(
    model: Model | str,
    input: RawInput,
    decoding: GenerationConfig = GenerationConfig(),  # noqa: B008 - frozen
) -> TokenAttributions:
    """Ask a model once; `agree` then judges any map of it."""
    return attribute_look_input(make_input(*open_with_task(model), input), decoding)


def attribute_look_input(look_input: LookInput, decoding: GenerationConfig = GenerationConfig()) -> TokenAttributions:
    """The same for a row that is ready."""
    if not isinstance(look_input.batch.source, Text):
        raise UsageError(
            f"Agreement is about tokens that can be taken away; {look_input.model.family.name} reads no text."
        )
    looks = look_at(look_input, decoding=decoding)
    with eval_mode(look_input.model):
        if look_input.is_autoregressive:
            look_input = replace(look_input, target=tuple(make_target(look_input, decoding).ids))
        score = _make_scorer(look_input)
        tokens = tuple(
            i
            for i, special in enumerate(look_input.input_axis.special_tokens_mask)
            if not special or not any(look_input.texts)
        )
        alone = _score_drops(look_input, score, [[token] for token in tokens])
    return TokenAttributions(
        look_input, looks, score, tokens, _integrated_gradients(look_input, score)[list(tokens)], alone
    )


def select_testable_maps(attributions: TokenAttributions) -> list[AttentionMap]:
    """The maps that look at what was read, whose tokens can be taken away."""
    read = [
        m
        for m in attributions.attention_maps.maps
        if m.kind in ("self", "cross") and m.key.kind in ("input", "decoder_input")
    ]
    return [
        m
        for m in read
        if m.side != "decoder" or m.kind == "cross"
        if len(m.key) >= len(attributions.look_input.input_axis)
    ]


def measure_faithfulness(
    attributions: TokenAttributions, attention_map: AttentionMap, head: int | None = None, *, seed: int = 0
) -> Faithfulness:
    """One head of a map (by its place), or the mean of all, held against the evidence."""
    weights = attention_map.mean if head is None else attention_map.to_dense()[head]
    title = f"{attention_map.title}, {'mean of the heads' if head is None else attention_map.head_name(head)}"
    if len(attention_map.key) < len(attributions.look_input.input_axis):
        raise UsageError(
            f"{title} has {len(attention_map.key)} keys for {len(attributions.look_input.input_axis)} tokens; look without `reduce`."
        )
    return measure_weights_faithfulness(
        attributions, weights.mean(0).numpy()[list(attributions.token_positions)], title=title, seed=seed
    )


def measure_weights_faithfulness(
    attributions: TokenAttributions, weights: np.ndarray, *, title: str, seed: int = 0
) -> Faithfulness:
    """The same for any weights of the tokens that may be taken away."""
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
    """How much further the answer falls than by chance, as a share of the furthest."""
    tokens = np.array(attributions.token_positions)
    count = max(1, round(DELETED_FRACTION * len(tokens)))
    generator = np.random.default_rng(seed)
    drawn = [generator.choice(tokens, count, replace=False).tolist() for _ in range(RANDOM_DELETIONS)]
    best = [
        tokens[np.argsort(-order, kind="stable")[:count]].tolist() for order in (weights, attributions.leave_one_out)
    ]
    with eval_mode(attributions.look_input.model):
        falls = _score_drops(attributions.look_input, attributions.score_answer, [*best, *drawn])
    chance, top = float(falls[2:].mean()), float(max(falls[1], falls[0]))
    spread = top - chance
    return float(np.clip((falls[0] - chance) / spread, -1, 1)) if spread > 1e-6 else 0.0


def _score_drops(look_input: LookInput, score: Callable[[Batch], Tensor], deletions: list[list[int]]) -> np.ndarray:
    """How much less likely the answer is without some tokens, for each list of them."""
    source = look_input.batch.source
    assert isinstance(source, Text)
    whole = float(score(look_input.batch)[0])
    out: list[float] = []
    for start in range(0, len(deletions), MAX_DELETIONS_PER_BATCH):
        some = deletions[start : start + MAX_DELETIONS_PER_BATCH]
        keep = torch.ones(len(some), source.tokens.size(1), dtype=torch.bool)
        for row, tokens in enumerate(some):
            keep[row, tokens] = False  # positions count what is kept, so this is as if they had never been there
        text = Text(
            *(None if x is None else x.expand(len(some), -1) for x in (source.tokens, None, source.segment_ids))  # type: ignore[arg-type]
        )
        out += (whole - score(Batch(replace(text, keep=keep), items=look_input.batch.items * len(some)))).tolist()
    return np.array(out)


def _make_scorer(look_input: LookInput) -> Callable[[Batch], Tensor]:
    """How likely the answer that was given is, in nats, for each row of other batches; of tags, the mean over tokens."""
    model: Any = look_input.model
    device = next(model.parameters()).device
    if look_input.is_autoregressive:
        target = torch.tensor([look_input.target], device=device)

        def written(batch: Batch) -> Tensor:
            rows = len(batch.source.tokens)  # type: ignore[union-attr]
            scores = teacher_forced_logits(model, Batch(batch.to(device).source, Text(target.expand(rows, -1))))
            return scores.log_softmax(-1).gather(-1, target.expand(rows, -1)[..., None]).sum((1, 2)).cpu()

        return written
    if model.head is None:
        raise ModelError(
            f"This {model.family.name} has no head that answers, so there is no answer to depend on a token."
        )
    first = _log_probabilities(model, model(look_input.batch.to(device)))
    chosen = first.argmax(-1)  # (1,) of the whole text, or (1, N) of each token or end

    def said(batch: Batch) -> Tensor:
        shares = _log_probabilities(model, model(batch.to(device)))
        each = shares.gather(-1, chosen.expand(len(shares), *chosen.shape[1:])[..., None])[..., 0].clamp(
            min=MIN_LOGPROB
        )
        keep = batch.source.keep  # type: ignore[union-attr]
        if each.dim() == 1 or each.shape != batch.source.tokens.shape:  # type: ignore[union-attr]
            return each.reshape(len(each), -1).sum(1).cpu()
        real = torch.ones_like(each) if keep is None else keep.to(each)
        return ((each * real).sum(1) / real.sum(1).clamp(min=1)).cpu()

    return said


def _log_probabilities(model: Model, scores: Tensor) -> Tensor:
    """What a head says as log-probabilities, along the last axis: of labels, of tags or words, or of places for a span's ends."""
    if model.head_name == "span":
        return scores.transpose(1, 2).log_softmax(-1)
    if model.multi_label:
        return F.logsigmoid(scores)
    return scores.log_softmax(-1) if scores.size(-1) > 1 else scores  # one output is a number


def _integrated_gradients(look_input: LookInput, score: Callable[[Batch], Tensor]) -> np.ndarray:
    """Integrated gradients of the answer on the vectors of the source's tokens, from nothing to what they are, (L,)."""
    model = look_input.model
    words = next((m for m in model.body.modules() if isinstance(m, TokenEmbedding)), None)
    if words is None:
        raise ModelError(f"{model.family.name} has no table of words, so there are no vectors to ask for gradients.")
    source = look_input.batch.source
    assert isinstance(source, Text)
    with eval_mode(model):
        whole = words(source.tokens.to(words.vectors.weight.device))  # (1, L, W)
        base = _baseline_vector(look_input, words).expand_as(whole)
    total = torch.zeros_like(whole)
    training = model.training
    model.eval()
    try:
        for step in range(INTEGRATION_STEPS):
            part = (base + (whole - base) * (step + 0.5) / INTEGRATION_STEPS).detach().requires_grad_()
            with _ReplaceEmbeddings(words, part), torch.enable_grad():
                out = score(look_input.batch)[0]
                total += torch.autograd.grad(out, part)[0]
    finally:
        model.train(training)
    return (((whole - base) * total / INTEGRATION_STEPS).sum(-1))[0].detach().cpu().numpy()


def _baseline_vector(look_input: LookInput, embedding: TokenEmbedding) -> Tensor:
    """The vector that says nothing: that of the mask where the model knows one, and zero otherwise."""
    mask = None if look_input.model.tokenizer is None else look_input.model.tokenizer.mask_id
    weight = embedding.vectors.weight
    return (
        torch.zeros_like(weight[:1, None]) if mask is None else embedding(torch.tensor([[mask]], device=weight.device))
    )


class _ReplaceEmbeddings:
    """The vectors of the source are others while this lasts; those of what is written, asked for later, are as they are."""

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
