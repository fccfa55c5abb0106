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
from saccade.decoding.loop import follow
from saccade.decoding.settings import Decoding
from saccade.errors import ModelError, UsageError
from saccade.explain.inputs import Asked, Input, ask, opened
from saccade.explain.look import look_at, still
from saccade.explain.looks import Looks, Seen
from saccade.explain.writing import write
from saccade.models.model import Model
from saccade.parts.embed import Words
from saccade.tasks.metrics import spearman

STEPS = 32  # between nothing and the vectors as they are
DRAWS = 48  # of random tokens
SHARE = 0.2  # of the tokens are taken away
WEAK, STRONG = 0.3, 0.6
LEAST = -30.0  # a log-probability below which nothing is worse
ROWS = 64  # deletions that are read at once


@dataclass(frozen=True)
class Agreement:
    """How well one head of a map agrees with what the answer depends on; nan where it cannot be told."""

    title: str
    gradients: float
    deletion: float

    @property
    def label(self) -> str:
        """The evidence in plain words."""
        known = [value for value in (self.gradients, self.deletion) if value == value]
        if not known:
            return "no evidence: there are too few tokens to tell"
        grade = (
            "good"
            if min(known) >= STRONG
            else "weak"
            if max(known) < WEAK
            else "mixed"
            if min(known) < WEAK
            else "some"
        )
        clauses = [clause for clause in (_deletion_clause(self.deletion), _gradient_clause(self.gradients)) if clause]
        return f"{grade} evidence: {(', but ' if grade == 'mixed' else ', and ').join(clauses)}"

    def __str__(self) -> str:
        return f"{self.title}: gradients {self.gradients:.2f}, deletion {self.deletion:.2f}; {self.label}"


def _deletion_clause(value: float) -> str:
    """What deletion says of a map, in words; nothing where it is nan."""
    if value != value:
        return ""
    if value >= STRONG:
        return "the answer changes when the tokens it points at are removed"
    if value >= WEAK:
        return "the answer changes somewhat more when the tokens it points at are removed than when random ones are"
    if value > -WEAK:
        return "removing the tokens it points at changes the answer no more than removing random ones"
    return "removing the tokens it points at changes the answer less than removing random ones"


def _gradient_clause(value: float) -> str:
    """What gradients say of a map, in words; nothing where the correlation is nan."""
    if value != value:
        return ""
    if value >= STRONG:
        return "gradients point at the same tokens"
    if value >= WEAK:
        return "gradients point at the same tokens in part"
    return "gradients do not point at the same tokens" if value > -WEAK else "gradients point at other tokens"


@dataclass(frozen=True)
class Evidence:
    """What an answer depends on: for each token that may be taken away, its attribution and what its absence does."""

    asked: Asked
    looks: Looks
    score: Callable[[Batch], Tensor]  # a batch to how likely the answer is in each of its rows
    tokens: tuple[int, ...]  # numbers of the tokens that are not special
    gradients: np.ndarray  # (tokens,)
    alone: np.ndarray  # (tokens,) how far the answer falls without each


def evidence(model: Model | str, input: Input, decoding: Decoding = Decoding()) -> Evidence:  # noqa: B008 - frozen
    """Ask a model once; `agree` then judges any map of it."""
    return evidence_of(ask(*opened(model), input), decoding)


def evidence_of(asked: Asked, decoding: Decoding = Decoding()) -> Evidence:  # noqa: B008 - frozen
    """The same for a row that is ready."""
    if not isinstance(asked.batch.source, Text):
        raise UsageError(f"Agreement is about tokens that can be taken away; {asked.model.family.name} reads no text.")
    looks = look_at(asked, decoding=decoding)
    with still(asked.model):
        if asked.writes:
            asked = replace(asked, target=tuple(write(asked, decoding).ids))
        score = _scorer(asked)
        tokens = tuple(i for i, special in enumerate(asked.read.special) if not special or not any(asked.texts))
        alone = _fall(asked, score, [[token] for token in tokens])
    return Evidence(asked, looks, score, tokens, _integrated(asked, score)[list(tokens)], alone)


def judged(found: Evidence) -> list[Seen]:
    """The maps that look at what was read, whose tokens can be taken away."""
    read = [m for m in found.looks.maps if m.kind in ("self", "across") and m.key.of in ("read", "given")]
    return [m for m in read if m.side != "decoder" or m.kind == "across" if len(m.key) >= len(found.asked.read)]


def agree(found: Evidence, seen: Seen, head: int | None = None, *, seed: int = 0) -> Agreement:
    """One head of a map (by its place), or the mean of all, held against the evidence."""
    weights = seen.mean if head is None else seen.dense()[head]
    title = f"{seen.title}, {'mean of the heads' if head is None else seen.called(head)}"
    if len(seen.key) < len(found.asked.read):
        raise UsageError(f"{title} has {len(seen.key)} keys for {len(found.asked.read)} tokens; look without `reduce`.")
    return judge(found, weights.mean(0).numpy()[list(found.tokens)], title=title, seed=seed)


def judge(found: Evidence, points: np.ndarray, *, title: str, seed: int = 0) -> Agreement:
    """The same for any weights of the tokens that may be taken away."""
    if len(found.tokens) < 3:
        return Agreement(title, float("nan"), float("nan"))
    return Agreement(title, _ranks(points, np.abs(found.gradients)), _deletion(found, points, seed))


def _ranks(points: np.ndarray, sizes: np.ndarray) -> float:
    return spearman(sizes, points, rounds=1).value


def _deletion(found: Evidence, points: np.ndarray, seed: int) -> float:
    """How much further the answer falls than by chance, as a share of the furthest."""
    tokens = np.array(found.tokens)
    count = max(1, round(SHARE * len(tokens)))
    generator = np.random.default_rng(seed)
    drawn = [generator.choice(tokens, count, replace=False).tolist() for _ in range(DRAWS)]
    best = [tokens[np.argsort(-order, kind="stable")[:count]].tolist() for order in (points, found.alone)]
    with still(found.asked.model):
        falls = _fall(found.asked, found.score, [*best, *drawn])
    chance, top = float(falls[2:].mean()), float(max(falls[1], falls[0]))
    spread = top - chance
    return float(np.clip((falls[0] - chance) / spread, -1, 1)) if spread > 1e-6 else 0.0


def _fall(asked: Asked, score: Callable[[Batch], Tensor], gone: list[list[int]]) -> np.ndarray:
    """How much less likely the answer is without some tokens, for each list of them."""
    source = asked.batch.source
    assert isinstance(source, Text)
    whole = float(score(asked.batch)[0])
    out: list[float] = []
    for start in range(0, len(gone), ROWS):
        some = gone[start : start + ROWS]
        keep = torch.ones(len(some), source.tokens.size(1), dtype=torch.bool)
        for row, tokens in enumerate(some):
            keep[row, tokens] = False  # positions count what is kept, so this is as if they had never been there
        text = Text(*(None if x is None else x.expand(len(some), -1) for x in (source.tokens, None, source.segment)))  # type: ignore[arg-type]
        out += (whole - score(Batch(replace(text, keep=keep), rows=asked.batch.rows * len(some)))).tolist()
    return np.array(out)


def _scorer(asked: Asked) -> Callable[[Batch], Tensor]:
    """How likely the answer that was given is, in nats, for each row of other batches; of tags, the mean over tokens."""
    model: Any = asked.model
    device = next(model.parameters()).device
    if asked.writes:
        target = torch.tensor([asked.target], device=device)

        def written(batch: Batch) -> Tensor:
            rows = len(batch.source.tokens)  # type: ignore[union-attr]
            scores = follow(model, Batch(batch.to(device).source, Text(target.expand(rows, -1))))
            return scores.log_softmax(-1).gather(-1, target.expand(rows, -1)[..., None]).sum((1, 2)).cpu()

        return written
    if model.head is None:
        raise ModelError(
            f"This {model.family.name} has no head that answers, so there is no answer to depend on a token."
        )
    first = _likely(model, model(asked.batch.to(device)))
    chosen = first.argmax(-1)  # (1,) of the whole text, or (1, N) of each token or end

    def said(batch: Batch) -> Tensor:
        shares = _likely(model, model(batch.to(device)))
        each = shares.gather(-1, chosen.expand(len(shares), *chosen.shape[1:])[..., None])[..., 0].clamp(min=LEAST)
        keep = batch.source.keep  # type: ignore[union-attr]
        if each.dim() == 1 or each.shape != batch.source.tokens.shape:  # type: ignore[union-attr]
            return each.reshape(len(each), -1).sum(1).cpu()
        real = torch.ones_like(each) if keep is None else keep.to(each)
        return ((each * real).sum(1) / real.sum(1).clamp(min=1)).cpu()

    return said


def _likely(model: Model, scores: Tensor) -> Tensor:
    """What a head says as log-probabilities, along the last axis: of labels, of tags or words, or of places for a span's ends."""
    if model.kind == "span":
        return scores.transpose(1, 2).log_softmax(-1)
    if model.many:
        return F.logsigmoid(scores)
    return scores.log_softmax(-1) if scores.size(-1) > 1 else scores  # one output is a number


def _integrated(asked: Asked, score: Callable[[Batch], Tensor]) -> np.ndarray:
    """Integrated gradients of the answer on the vectors of the source's tokens, from nothing to what they are, (L,)."""
    model = asked.model
    words = next((m for m in model.body.modules() if isinstance(m, Words)), None)
    if words is None:
        raise ModelError(f"{model.family.name} has no table of words, so there are no vectors to ask for gradients.")
    source = asked.batch.source
    assert isinstance(source, Text)
    with still(model):
        whole = words(source.tokens.to(words.vectors.weight.device))  # (1, L, W)
        base = _nothing(asked, words).expand_as(whole)
    total = torch.zeros_like(whole)
    training = model.training
    model.eval()
    try:
        for step in range(STEPS):
            part = (base + (whole - base) * (step + 0.5) / STEPS).detach().requires_grad_()
            with _replaced(words, part), torch.enable_grad():
                out = score(asked.batch)[0]
                total += torch.autograd.grad(out, part)[0]
    finally:
        model.train(training)
    return (((whole - base) * total / STEPS).sum(-1))[0].detach().cpu().numpy()


def _nothing(asked: Asked, words: Words) -> Tensor:
    """The vector that says nothing: that of the mask where the model knows one, and zero otherwise."""
    mask = None if asked.model.tokenizer is None else asked.model.tokenizer.mask
    weight = words.vectors.weight
    return torch.zeros_like(weight[:1, None]) if mask is None else words(torch.tensor([[mask]], device=weight.device))


class _replaced:
    """The vectors of the source are others while this lasts; those of what is written, asked for later, are as they are."""

    def __init__(self, words: Words, vectors: Tensor):
        self.words, self.vectors, self.done = words, vectors, False

    def __enter__(self) -> None:
        def swap(_: Any, __: Any, out: Tensor) -> Tensor:
            if self.done:
                return out
            self.done = True
            length = self.vectors.size(1)
            return torch.cat([self.vectors, out[:, length:]], dim=1) if out.size(1) > length else self.vectors

        self.handle = self.words.register_forward_hook(swap)

    def __exit__(self, *_: object) -> None:
        self.handle.remove()
