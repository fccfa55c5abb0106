"""Cross-entropy over the vocabulary, computed in chunks: the logits are by far the largest tensor in training.

The reference implementation leaves the backward pass to autograd, which recomputes the logits. The fast path computes the logits
of a few rows at a time together with their gradient, so that they are computed once and never exist all at once. Under autocast
its matrix products use the lower precision; probabilities and sums do not.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from saccade.data import Batch, Text
from saccade.models.encoder_decoder import BiasedLMHead
from saccade.models.model import Model
from saccade.parts.heads import LMHead
from saccade.parts.state import State

MAX_LOGITS_PER_CHUNK = 2**24  # logits in memory at one time: 64 MB of float32
MAX_LOGITS_IN_CACHE = 2**21  # the same for the fast path on a CPU, so that they stay in its cache
MIN_ROWS_PER_CHUNK = 256  # fewer rows would be slow, as each chunk reads the whole output embedding matrix


def lm_loss(head: LMHead | Any, x: Tensor, gold: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The summed cross-entropy of the logits of (N, W) hidden states against (N,) target tokens."""
    if torch.is_grad_enabled() and is_linear_head(head) and has_full_precision(x):
        device = x.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        x = head.between(x)
        with torch.autocast(device, enabled=False):
            return ChunkedCrossEntropy.apply(x, head.score.weight, head.output_bias, gold, label_smoothing, dtype)
    return lm_loss_reference(head, x, gold, label_smoothing)


def is_linear_head(head: Any) -> bool:
    """Whether a head's logits are one product with the output embeddings plus a bias, and nothing else."""
    return type(head) in (LMHead, BiasedLMHead) and type(head.score) is nn.Linear


def has_full_precision(x: Tensor) -> bool:
    """Whether the dtype of x is precise enough for sums; the reference implementation sums lower precisions in float32."""
    return x.dtype in (torch.float32, torch.float64)


def lm_loss_reference(head: LMHead | Any, x: Tensor, gold: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The reference implementation of `lm_loss`, in chunks whose logits are recomputed in the backward pass."""

    def chunk_loss(a: Tensor, b: Tensor) -> Tensor:
        return F.cross_entropy(head(a), b, reduction="sum", label_smoothing=label_smoothing)

    rows = max_rows_per_chunk(head)
    if len(x) <= rows:
        return chunk_loss(x, gold)
    losses = [
        checkpoint(chunk_loss, a, b, use_reentrant=False, preserve_rng_state=False)
        for a, b in zip(x.split(rows), gold.split(rows), strict=True)
    ]
    return torch.stack(losses).sum()


class ChunkedCrossEntropy(torch.autograd.Function):
    """The loss with its gradient, computed chunk by chunk while the logits are in memory.

    For a softmax p over V tokens with label smoothing s, the gradient of the logits is p - s/V, minus 1 - s at the target.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        output_bias: Tensor | None,
        gold: Tensor,
        label_smoothing: float,
        dtype: torch.dtype,
    ) -> Tensor:
        loss, weight_low = weight.new_zeros(()), weight.to(dtype)
        # the mean logit of a hidden state over all tokens is its product with the mean output embedding
        mean_weight, mean_bias = weight.mean(0), 0.0 if output_bias is None else output_bias.mean()
        grad_x, grad_weight = torch.empty_like(x), torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        grad_bias = torch.zeros_like(output_bias) if output_bias is not None and ctx.needs_input_grad[2] else None
        rows = MAX_LOGITS_PER_CHUNK // len(weight)
        if x.device.type == "cpu":
            rows = min(rows, max(MIN_ROWS_PER_CHUNK, MAX_LOGITS_IN_CACHE // len(weight)))
        rows = max(1, rows)
        for chunk, targets, grad_chunk in zip(x.split(rows), gold.split(rows), grad_x.split(rows), strict=True):
            chunk = chunk.to(dtype)
            logits = F.linear(chunk, weight_low, None if output_bias is None else output_bias.to(dtype))  # (N, V)
            grad = logits.softmax(-1, dtype=loss.dtype)  # a probability near 1 needs the full precision
            best, best_prob = logits.amax(-1).to(loss.dtype), grad.amax(-1)  # the largest probability is never 0
            nll = best - logits.gather(1, targets[:, None])[:, 0]
            if label_smoothing:
                nll = nll.lerp(best - (chunk.to(loss.dtype) @ mean_weight + mean_bias), label_smoothing)
                grad -= label_smoothing / len(weight)
            loss += (nll - best_prob.log()).sum()
            grad[torch.arange(len(targets), device=targets.device), targets] -= 1 - label_smoothing
            grad_low = grad.to(dtype)
            grad_chunk.copy_(grad_low @ weight_low)
            if grad_weight is not None:
                _add_product(grad_weight, grad_low.T, chunk)
            if grad_bias is not None:
                grad_bias += grad.sum(0)
            del logits, grad, grad_low  # free the memory before the next chunk
        ctx.save_for_backward(grad_x, grad_weight, grad_bias)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Any:  # type: ignore[override]
        return *(None if grad is None else grad_output * grad for grad in ctx.saved_tensors), None, None, None


def _add_product(to: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b to `to` in place; a and b may have a lower precision."""
    if to.dtype == a.dtype:
        to.addmm_(a, b)
    else:
        to += a @ b


def token_nll(head: LMHead | Any, x: Tensor, gold: Tensor) -> Tensor:
    """The negative log-likelihood of each of (N,) target tokens in nats, (N,), for scoring; training uses `lm_loss`."""
    rows = max_rows_per_chunk(head)
    pairs = zip(x.split(rows), gold.split(rows), strict=True)
    return torch.cat([F.cross_entropy(head(a), b, reduction="none") for a, b in pairs])


def max_rows_per_chunk(head: LMHead | Any) -> int:
    """The number of rows whose logits may be in memory at one time."""
    return max(1, MAX_LOGITS_PER_CHUNK // head.score.out_features)


def seq2seq_loss(model: Model, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
    """The summed teacher-forcing loss of a decoder on the targets of a batch."""
    return decoder_loss(model, *model.start(batch), batch.target, label_smoothing)


def decoder_loss(model: Model, state: State, first: Text, target: Text | None, label_smoothing: float = 0.0) -> Tensor:
    """The same for a decoder that was started already; logits are computed for real tokens only."""
    assert target is not None, "a training batch has targets"
    body = model.autoregressive_body
    prefix_length = first.tokens.size(1)
    tokens = torch.cat([first.tokens, target.tokens[:, :-1]], dim=1)
    keep = None
    if first.keep is not None or target.keep is not None:
        keep = torch.cat([first.keep_mask, target.keep_mask[:, :-1]], dim=1)
    x = body.hidden_states(Text(tokens, keep), state)[:, prefix_length - 1 :]  # each position predicts the next token
    if target.keep is None:
        return lm_loss(body.head, x.flatten(0, 1), target.tokens.flatten(), label_smoothing)
    return lm_loss(body.head, x[target.keep], target.tokens[target.keep], label_smoothing)
