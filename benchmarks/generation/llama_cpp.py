"""llama.cpp as a rival: its C interface, ids in and ids out, several texts at a time."""

from typing import Any

import numpy as np

from saccade.errors import UsageError


class Llama:
    """A model of llama.cpp with room for all rows; greedy, in one call for each new token of all of them."""

    def __init__(self, path: str, rows: list[list[int]], *, new: int, threads: int, vocab: int):
        import llama_cpp  # type: ignore[import-not-found]

        self.api, self.rows, self.vocab = llama_cpp, rows, vocab
        self._quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)  # must live as long as the library
        llama_cpp.llama_log_set(self._quiet, None)
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        longest = max(map(len, rows))
        how = llama_cpp.llama_context_default_params()
        how.n_seq_max, how.n_batch = len(rows), sum(map(len, rows))
        how.n_ctx = len(rows) * (longest + new)
        how.n_threads = how.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, how)
        if not self.context:
            raise UsageError(f"{path}: llama.cpp could not open it for {len(rows)} texts of {longest + new} tokens.")
        self.batch = llama_cpp.llama_batch_init(how.n_batch, 0, 1)

    def write(self, new: int) -> list[list[int]]:
        """So many new tokens for each row."""
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
        tokens = self._read()
        out = [[token] for token in tokens]
        for number in range(1, new):
            items = [(token, len(self.rows[i]) + number - 1, i, True) for i, token in enumerate(tokens)]
            tokens = self._step(items)
            for row, token in zip(out, tokens, strict=True):
                row.append(token)
        return out

    def _read(self) -> list[int]:
        """All prompts at once; the last token of each is answered."""
        return self._step([(t, n, i, n + 1 == len(row)) for i, row in enumerate(self.rows) for n, t in enumerate(row)])

    def _step(self, items: list[tuple[int, int, int, bool]]) -> list[int]:
        """(token, position, row, whether its scores are wanted) of each; the best next token of those wanted."""
        batch: Any = self.batch
        batch.n_tokens = len(items)
        for place, (token, position, row, wanted) in enumerate(items):
            batch.token[place], batch.pos[place] = token, position
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, row
            batch.logits[place] = wanted
        if self.api.llama_decode(self.context, batch):
            raise RuntimeError(f"llama.cpp could not take {len(items)} tokens.")
        return [self._best(place) for place, item in enumerate(items) if item[3]]

    def _best(self, place: int) -> int:
        scores = self.api.llama_get_logits_ith(self.context, place)
        return int(np.ctypeslib.as_array(scores, shape=(self.vocab,)).argmax())
