"""llama.cpp as a baseline, through its C interface: token ids in and out, several sequences in one batch."""

from typing import Any

import numpy as np

from saccade.errors import UsageError


class Llama:
    """A llama.cpp model with a context for all rows: greedy decoding, one call for each new token of the whole batch."""

    def __init__(self, path: str, rows: list[list[int]], *, new_tokens: int, threads: int, vocab: int):
        import llama_cpp  # type: ignore[import-not-found]

        self.api, self.rows, self.vocab = llama_cpp, rows, vocab
        # the callback must live as long as the library
        self._silent_log = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._silent_log, None)
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        longest = max(map(len, rows))
        params = llama_cpp.llama_context_default_params()
        params.n_seq_max, params.n_batch = len(rows), sum(map(len, rows))
        params.n_ctx = len(rows) * (longest + new_tokens)
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            size = f"{len(rows)} texts of {longest + new_tokens} tokens"
            raise UsageError(f"{path}: llama.cpp could not create a context for {size}.")
        self.batch = llama_cpp.llama_batch_init(params.n_batch, 0, 1)

    def generate(self, new_tokens: int) -> list[list[int]]:
        """Greedily decode this number of new tokens for each row."""
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
        tokens = self._prefill()
        out = [[token] for token in tokens]
        for number in range(1, new_tokens):
            items = [(token, len(self.rows[i]) + number - 1, i, True) for i, token in enumerate(tokens)]
            tokens = self._decode(items)
            for row, token in zip(out, tokens, strict=True):
                row.append(token)
        return out

    def _prefill(self) -> list[int]:
        """Process all prompts in one batch; returns the first new token of each."""
        return self._decode(
            [(t, n, i, n + 1 == len(row)) for i, row in enumerate(self.rows) for n, t in enumerate(row)]
        )

    def _decode(self, items: list[tuple[int, int, int, bool]]) -> list[int]:
        """Run a batch of (token, position, row, needs logits); returns the best next token of each item that needs logits."""
        batch: Any = self.batch
        batch.n_tokens = len(items)
        for index, (token, position, row, needs_logits) in enumerate(items):
            batch.token[index], batch.pos[index] = token, position
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, row
            batch.logits[index] = needs_logits
        if self.api.llama_decode(self.context, batch):
            raise RuntimeError(f"llama.cpp could not decode a batch of {len(items)} tokens.")
        return [self._argmax(index) for index, item in enumerate(items) if item[3]]

    def _argmax(self, index: int) -> int:
        logits = self.api.llama_get_logits_ith(self.context, index)
        return int(np.ctypeslib.as_array(logits, shape=(self.vocab,)).argmax())
