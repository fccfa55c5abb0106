"""Inference optimization: `fast` converts a model to a quantized, faster form with the same interface.

    model = fast(load("gpt2"))
    model.precision_choice                           # int8: ...
    rows = generate(model, batch, stop_ids=50256, max_new_tokens=64)

The fast model copies the weights that it needs; delete the original model to free its memory.
"""

from collections.abc import Sequence
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saccade.attention import Layout, Mechanism
from saccade.data import Batch, Text
from saccade.decoding.candidates import TopKTokens, topk_tokens
from saccade.engine.convert import ModuleConverter
from saccade.engine.kernels.compile_encoder import compile_text_encoder
from saccade.engine.kernels.encoder_program import EncoderProgram
from saccade.engine.kernels.library import instruction_set
from saccade.engine.kv_cache import KVCache
from saccade.engine.packed_linear import Int8TiledLinear
from saccade.engine.precision import COMPILED, PrecisionChoice, choose_precision
from saccade.engine.stack import FastStack
from saccade.errors import UsageError
from saccade.keywords import check_keywords
from saccade.models.encoder_decoder import EncoderDecoder
from saccade.models.model import LoadReport, Model
from saccade.models.pooling import Pooling
from saccade.parts.heads import LMHead
from saccade.parts.stack import Stack
from saccade.parts.state import State
from saccade.system import cpu_count, trim_heap

# pooling modes that an encoder program computes itself
NATIVE_POOLS: dict[tuple[str, ...], str] = {("mean",): "mean", ("cls",): "first"}
MIN_TOKENS_TO_TRIM = 512  # tokens of a batch; prefill of as many leaves megabytes of free heap, which are given back


class FastModel(Model):
    """A model converted for inference, which cannot be trained; `precision_choice` is its precision and the reason for it."""

    def __init__(self, original: Model, body: nn.Module, head: nn.Module | None, precision_choice: PrecisionChoice):
        super().__init__(
            original.family,
            original.config,
            body,
            head,
            original.head_name,
            labels=original.labels,
            multi_label=original.multi_label,
        )
        self.precision_choice = precision_choice
        self.thresholds: dict[str, float] = original.thresholds
        self.tokenizer: Any = original.tokenizer
        self.pooling: Pooling = original.pooling
        self.report: LoadReport = original.report
        self.text_program: EncoderProgram | None = None  # from token ids to hidden states
        self._mechanisms = tuple(part for part in body.modules() if isinstance(part, Mechanism))
        self.eval()

    @torch.no_grad()
    def encode(self, batch: Batch) -> Tensor:
        text = batch.source
        if self.text_program is None or not isinstance(text, Text) or not self._is_plain(text):
            return super().encode(batch)
        program, tokens, segments = self.text_program, text.tokens, text.segment_ids
        keep = text.keep_mask
        rows = program.encode(
            keep.sum(1).tolist(),
            tokens=tokens[keep].int(),
            segments=None if segments is None else segments[keep].int(),
        )
        if text.keep is None:
            return rows.unflatten(0, tokens.shape)
        return rows.new_zeros(*tokens.shape, program.width).index_put_((keep,), rows)

    @torch.no_grad()
    def embed_tokens(self, token_ids: Sequence[Sequence[int]], segment_ids: Sequence[Sequence[int]]) -> Tensor:
        pool = NATIVE_POOLS.get(self.pooling.modes)
        if self.text_program is None or pool is None or self._is_watched():
            return super().embed_tokens(token_ids, segment_ids)
        lengths = [len(ids) for ids in token_ids]
        tokens = torch.tensor(list(chain.from_iterable(token_ids)), dtype=torch.int32)
        segments = None
        if any(map(any, segment_ids)):
            segments = torch.tensor(list(chain.from_iterable(segment_ids)), dtype=torch.int32)
        x = self.text_program.encode(lengths, tokens=tokens, segments=segments, pool=pool)
        return self.pooling.apply_layers(x)

    @property
    def encoder_notes(self) -> list[str]:
        """How each stack that is not a decoder is computed: as one encoder program, or layer by layer and why."""
        stacks = [(name, part) for name, part in self.body.named_modules() if isinstance(part, FastStack)]
        return [
            f"{name}: "
            + (
                f"layer by layer, since {s.program_reason}"
                if s.encoder_program is None
                else f"one program, {instruction_set()}"
            )
            for name, s in stacks
            if self.capabilities.side_of(f"{name}.") != "decoder" and not self.capabilities.is_decoder_only
        ]

    def _is_plain(self, text: Text) -> bool:
        """Whether a batch has texts that are encoded by themselves, and nobody records attention weights."""
        return text.document_ids is None and text.global_mask is None and text.tokens.is_cpu and not self._is_watched()

    def _is_watched(self) -> bool:
        return any(mechanism.watcher is not None for mechanism in self._mechanisms)

    def start(self, batch: Batch) -> tuple[State, Text]:
        state, text = super().start(batch)
        if isinstance(batch.source, Text):
            _trim_after_prompt(batch.source)
        return state if self.precision_choice.precision == COMPILED else KVCache.from_state(state), text

    @torch.no_grad()
    def forward(self, batch: Batch) -> Tensor:
        return super().forward(batch)

    @torch.no_grad()
    def step(self, text: Text, state: State) -> Tensor:
        body = self.autoregressive_body
        if text.tokens.size(1) > 1 or not self.capabilities.generates_text:
            return body.step(text, state)
        output = body.head.score
        if text.keep is None or not isinstance(output, Int8TiledLinear):
            return body.step(text, state)
        active = text.keep[:, 0]  # rows that have ended are padding, and their scores are not used
        x = body.hidden_states(text, state)
        return x.new_zeros(*x.shape[:2], output.out_features).index_put_((active,), body.head(x[active]))

    @torch.no_grad()
    def step_topk(self, text: Text, state: State, count: int) -> TopKTokens:
        """The `count` most likely tokens after one new token per row; a fused operator never stores the scores of all tokens."""
        output = self._topk_output()
        if output is None:
            return topk_tokens(self.step(text, state)[:, -1], count)
        x = self.autoregressive_body.head.between(self._hidden_states(text, state))[:, -1]
        if text.keep is None:
            return output.weights.topk(x, count)
        active = text.keep[:, 0]  # rows that have ended are not computed
        top = output.weights.topk(x[active], count)
        values, tokens, log_probs = (t.new_zeros(len(x), *t.shape[1:]).index_put_((active,), t) for t in top)
        return values, tokens, log_probs

    @property
    def has_fused_topk(self) -> bool:
        """Whether a fused operator finds the top tokens. It cannot for image codes, whose step masks some of the scores."""
        return self._topk_output() is not None

    def _topk_output(self) -> Int8TiledLinear | None:
        """The output layer, if the fused top-k operator applies to it."""
        head = self.autoregressive_body.head if self.capabilities.generates_text else None
        return head.score if type(head) is LMHead and isinstance(head.score, Int8TiledLinear) else None

    def _hidden_states(self, text: Text, state: State) -> Tensor:
        """Hidden states (B, T, W) of new tokens; a source that several beams share is not repeated for each of them."""
        body = self._encoder_decoder()
        if body is None or not isinstance(state, KVCache):
            return self.autoregressive_body.hidden_states(text, state)
        is_shared = state.at("0.across").rows_per_source("key") == state.rows_per_source("memory")
        takes_shared = isinstance(body.decoder, FastStack) and body.decoder.has_fast_step
        memory = state.per_source("memory") if is_shared and takes_shared else state.get("memory")
        words = (body.target_words or body.words)(text.tokens)
        return body.decoder(words, Layout(text.keep), state, memory=memory, memory_keep=state.get("memory_keep"))

    def _encoder_decoder(self) -> EncoderDecoder | None:
        """The body, if it is an encoder-decoder that computes hidden states in the common way."""
        body = self.body
        if isinstance(body, EncoderDecoder) and type(body).hidden_states is EncoderDecoder.hidden_states:
            return body
        return None

    @torch.no_grad()
    def last_logits(self, text: Text, state: State) -> Tensor:
        """The scores (B, V) after the last real token of each row, which is all that prefill needs of a prompt."""
        scores = super().last_logits(text, state)
        self._drop_memory(state)
        _trim_after_prompt(text)
        return scores

    def _drop_memory(self, state: State) -> None:
        """Free the encoder output once every layer has computed its cross-attention keys from it; only its shape is kept."""
        body = self._encoder_decoder()
        if body is None or not isinstance(state, KVCache):
            return
        if all(
            state.at(f"{number}.across").per_source("key") is not None for number in range(len(body.decoder.layers))
        ):
            memory = state.per_source("memory")
            assert memory is not None, "the cross-attention keys were computed from it"
            placeholder = memory.new_full((1,), torch.nan)  # NaN, so that reading it by mistake would show
            state.put("memory", placeholder.expand(memory.shape), axis=1)

    def train(self, mode: bool = True) -> "FastModel":
        if mode:
            raise UsageError(
                "A fast model cannot be trained; train the original model, and convert it with fast() again."
            )
        return super().train(False)

    def save(self, directory: str | Path) -> Path:
        raise UsageError(f"A fast model cannot be saved; save the original model to {directory}.")


@check_keywords
def fast(model: Model, precision: str = "auto") -> FastModel:
    """Convert a model for fast inference: the same interface and the same results up to the rounding of `precision`.

    `precision` is "auto" (see `choose_precision`), "int8", "bfloat16", "float16" or "float32". On devices other than the
    CPU the model is compiled with `torch.compile` instead.
    """
    choice = choose_precision(model, precision)
    body, head = _copy_model(model)
    if choice.precision == COMPILED:
        for part in body.modules():
            if isinstance(part, Stack):
                part.compile(dynamic=True)
        return FastModel(model, body, head, choice)
    torch.set_num_threads(
        min(torch.get_num_threads(), cpu_count())
    )  # more threads than cores would wait for each other
    modules = nn.ModuleDict({"body": body} if head is None else {"body": body, "head": head}).float()
    with torch.no_grad():
        ModuleConverter(choice.precision).convert_model(modules)  # in place
        _clone_tensors(modules)
    converted = FastModel(model, modules["body"], None if head is None else modules["head"], choice)
    converted.text_program = compile_text_encoder(converted.body, converted.capabilities.text_encoder)
    return converted


def _copy_model(model: Model) -> tuple[nn.Module, nn.Module | None]:
    """Copy the modules of body and head but share their tensors, so that the original model can be converted in place."""
    if isinstance(model, FastModel):
        raise UsageError(
            f"This model is a fast model already ({model.precision_choice}); call fast() on the original model."
        )
    shared = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()}
    shared |= {id(buffer): buffer.detach() for buffer in model.buffers()}
    return deepcopy((model.body, model.head), shared)


def _clone_tensors(model: nn.Module) -> None:
    """Copy all remaining tensors: a single norm that is mapped from the model's file would keep the whole file in memory."""
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.data = tensor.data.clone()
    trim_heap()


def _trim_after_prompt(text: Text) -> None:
    """Give memory back to the system after a long prompt, since decoding single tokens needs far less."""
    if text.tokens.is_cpu and text.tokens.numel() >= MIN_TOKENS_TO_TRIM:
        trim_heap()
