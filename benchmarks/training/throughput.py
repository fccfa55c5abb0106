"""Training throughput beside the peers: the same model on the same data, in processes that take turns.

Ours is the real loop (`Learner`). The peers are `transformers` with sdpa and its own collators' padded batches in random
order, and a loop written by hand around a small GPT as nanoGPT has it. Tokens are real tokens; padding counts for nothing.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.training.common import Case, Step, by_length, in_any_order, learner, lines, loop, paragraphs
from benchmarks.training.masked_lm import masked_ours, masked_transformers
from saccade.bench.measure import read_peak_memory

VOCAB = 4096
CONTEXT = 256
ROWS = 12


def windows() -> np.ndarray:
    """A running text of random ids; how fast a model learns them does not depend on what they say."""
    return np.random.default_rng(0).integers(6, VOCAB, 200_000).astype(np.int32)


def windows_ours(case: Case) -> Step:
    """GPT-2's architecture, 6 layers, 384 wide, on windows of 256."""
    return _gpt2_ours(case, windows())


def causal_ours(case: Case) -> Step:
    """The same model on paragraphs, read as one running text in windows."""
    return _gpt2_ours(case, _running(paragraphs(VOCAB)))


def lines_ours(case: Case) -> Step:
    """The same model on short texts, which are packed one after the other."""
    return _gpt2_ours(case, _running(lines(VOCAB)))


def _running(texts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.append(text, 3) for text in texts])  # an end after each


def _gpt2_ours(case: Case, ids: np.ndarray) -> Step:
    from saccade.models.build import new
    from saccade.models.families import gpt2
    from saccade.tasks.batches import window_batches
    from saccade.tasks.language import Language

    sizes = gpt2.Config(
        vocab=VOCAB, width=384, layers=6, heads=6, max_positions=CONTEXT, dropout=case.dropout,
        attention_dropout=case.dropout, use_attention_dropout=case.dropout > 0,
    )  # fmt: skip
    task = Language()
    return learner(new("gpt2", sizes), task, window_batches(task, ids, CONTEXT, batch_tokens=ROWS * CONTEXT))


def pairs_ours(case: Case) -> Step:
    """Marian's architecture, 3 + 3 layers, 256 wide, on pairs of sentences in batches of like length."""
    from saccade.data import Example
    from saccade.models.build import new
    from saccade.models.families import marian
    from saccade.tasks.base import Item
    from saccade.tasks.translate import Translate

    sizes = marian.Config(
        vocab=VOCAB, width=256, layers=3, decoder_layers=3, heads=4, decoder_heads=4, ffn_width=1024, decoder_ffn_width=1024,
        decoder_start_id=0, max_positions=512, dropout=case.dropout, attention_dropout=case.dropout,
        use_attention_dropout=case.dropout > 0, activation="relu",
    )  # fmt: skip
    texts = lines(VOCAB)
    items = [Item(Example({}), a, target=b) for a, b in zip(texts, _shuffled(texts), strict=True)]
    task = Translate()
    return learner(new("marian", sizes), task, by_length(task, items, 2 * 64 * 20))


def windows_transformers(case: Case) -> Step:
    import transformers

    ids = torch.from_numpy(windows()).long()
    model = _gpt2_transformers(case)
    collate = transformers.default_data_collator

    def batches() -> Iterator[dict[str, Tensor]]:
        chance = torch.Generator().manual_seed(0)
        while True:
            starts = torch.randint(len(ids) - CONTEXT, (ROWS,), generator=chance).tolist()
            yield collate([{"input_ids": ids[s : s + CONTEXT], "labels": ids[s : s + CONTEXT]} for s in starts])

    return loop(model, batches(), lambda batch: batch["input_ids"].numel())


def causal_transformers(case: Case) -> Step:
    return _texts_transformers(case, paragraphs(VOCAB), 2 * ROWS)


def lines_transformers(case: Case) -> Step:
    return _texts_transformers(case, lines(VOCAB), 64)


def _texts_transformers(case: Case, texts: list[np.ndarray], size: int) -> Step:
    import transformers

    collate = transformers.DataCollatorForLanguageModeling(_tokenizer(transformers), mlm=False)
    rows = [{"input_ids": [*text.tolist(), 3][:CONTEXT]} for text in texts]
    count = lambda batch: int(batch["attention_mask"].sum())
    return loop(_gpt2_transformers(case), in_any_order(rows, collate, size), count)


def pairs_transformers(case: Case) -> Step:
    import transformers

    config = transformers.MarianConfig(
        vocab_size=VOCAB, d_model=256, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024, dropout=case.dropout,
        attention_dropout=case.dropout, activation_dropout=0.0, activation_function="relu", max_position_embeddings=512,
        pad_token_id=0, eos_token_id=3, decoder_start_token_id=0, forced_eos_token_id=None,
    )  # fmt: skip
    model = transformers.MarianMTModel._from_config(config, attn_implementation="sdpa")
    collate = transformers.DataCollatorForSeq2Seq(_tokenizer(transformers), model=model)
    texts = lines(VOCAB)
    rows = [{"input_ids": a.tolist(), "labels": b.tolist()} for a, b in zip(texts, _shuffled(texts), strict=True)]
    count = lambda batch: int(batch["attention_mask"].sum() + (batch["labels"] != -100).sum())
    return loop(model, in_any_order(rows, collate, 64), count)


def _gpt2_transformers(case: Case) -> Any:
    import transformers

    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=CONTEXT, n_embd=384, n_layer=6, n_head=6, resid_pdrop=case.dropout,
        embd_pdrop=case.dropout, attn_pdrop=case.dropout, bos_token_id=2, eos_token_id=3,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel._from_config(config, attn_implementation="sdpa")


def _tokenizer(transformers: Any) -> Any:
    """Only its padding is asked for."""
    from tokenizers import Tokenizer, models

    built = Tokenizer(models.WordLevel({"<pad>": 0, "<unk>": 1}, unk_token="<unk>"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=built, pad_token="<pad>", unk_token="<unk>")


def _shuffled(texts: list[np.ndarray]) -> list[np.ndarray]:
    """Targets whose lengths follow those of the sources, as translations do."""
    chance = np.random.default_rng(2)
    return [
        chance.integers(6, VOCAB, max(3, int(len(text) * chance.normal(1.05, 0.15)))).astype(np.int32) for text in texts
    ]


class Block(nn.Module):
    """One layer of a GPT as a person writes it by hand: one product for q, k and v, the fused kernel, a tanh GELU."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.drop = heads, dropout
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.enter, self.leave = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.enter(self.first(x)).chunk(3, -1)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.drop)
        x = x + F.dropout(self.leave(seen.transpose(1, 2).flatten(2)), self.drop)
        return x + F.dropout(self.down(F.gelu(self.up(self.second(x)), approximate="tanh")), self.drop)


def windows_by_hand(case: Case) -> Step:
    words, places = nn.Embedding(VOCAB, 384), nn.Embedding(CONTEXT, 384)
    layers = nn.ModuleList(Block(384, 6, case.dropout) for _ in range(6))
    norm = nn.LayerNorm(384)
    whole = nn.ModuleList([words, places, layers, norm])
    optimizer = torch.optim.AdamW(whole.parameters(), lr=1e-4, fused=True)
    ids = torch.from_numpy(windows()).long()
    chance = torch.Generator().manual_seed(0)

    def step() -> int:
        starts = torch.randint(len(ids) - CONTEXT - 1, (ROWS,), generator=chance).tolist()
        tokens = torch.stack([ids[s : s + CONTEXT] for s in starts])
        gold = torch.stack([ids[s + 1 : s + CONTEXT + 1] for s in starts])
        x = F.dropout(words(tokens) + places.weight, case.dropout)
        for layer in layers:
            x = layer(x)
        loss = F.cross_entropy((norm(x) @ words.weight.T).flatten(0, 1), gold.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(whole.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return tokens.numel()

    return step


CASES: dict[str, dict[str, Callable[[Case], Step]]] = {
    "causal": {"saccade": causal_ours, "transformers": causal_transformers},
    "full windows": {"saccade": windows_ours, "transformers": windows_transformers, "by hand": windows_by_hand},
    "encoder-decoder": {"saccade": pairs_ours, "transformers": pairs_transformers},
    "short texts": {"saccade": lines_ours, "transformers": lines_transformers},
    "masked": {"saccade": masked_ours, "transformers": masked_transformers},
}


def child(case: Case, seconds: float) -> None:
    """Measure one case here and print it."""
    step = CASES[case.name][case.who](case)
    torch.manual_seed(0)
    for _ in range(2):
        step()
    tokens, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        tokens += step()
    peak = (read_peak_memory()[0] or 0) / 1e6
    print(json.dumps({"tokens_per_second": tokens / (time.perf_counter() - start), "peak_mb": peak}))


def race(
    names: list[str], dropouts: list[float], *, rounds: int, seconds: float
) -> Iterator[tuple[Case, int, dict[str, float]]]:
    """Every case in a process of its own, the rivals taking turns, as often as `rounds` says."""
    for name in names:
        for dropout in dropouts:
            for turn in range(rounds):
                rivals = list(CASES[name])
                for who in rivals if turn % 2 == 0 else reversed(rivals):
                    case = Case(name, who, dropout)
                    words = [name, who, str(dropout), str(seconds)]
                    run = subprocess.run(
                        [sys.executable, "-W", "ignore", "-m", "benchmarks.training.throughput", *words],
                        capture_output=True,
                        text=True,
                    )
                    if run.returncode:
                        raise RuntimeError(f"{name} by {who} failed: {run.stderr.strip().splitlines()[-1:]}")
                    yield case, turn, json.loads(run.stdout.splitlines()[-1])


if __name__ == "__main__":
    child(Case(sys.argv[1], sys.argv[2], float(sys.argv[3])), float(sys.argv[4]))
