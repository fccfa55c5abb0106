"""Small models behind a real server on a free port, for the tests of the page."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
import uvicorn
from torch import nn

from saccade.models.build import new
from saccade.models.families import bert, captioner, gpt2, transformer
from saccade.serving.app import make_app
from saccade.serving.runs import RunFolder
from saccade.serving.server import open_listener
from saccade.serving.session import ModelSession
from saccade.text.train import train_tokenizer

SIZES = {"width": 24, "layers": 2, "heads": 3, "ffn_width": 32, "dropout": 0.0}
MARKUP = "<img src=x onerror=alert(1)>"


def loud(model):
    """Weights so large that attention is not even."""
    torch.manual_seed(3)
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.5)
    return model.eval()


CONFIGS = {
    "reader": ("bert", bert.Config(**SIZES, vocab=300, max_positions=600)),
    "writer": ("gpt2", gpt2.Config(**SIZES, vocab=300, max_positions=600)),
    "translator": ("transformer", transformer.Config(**SIZES, vocab=300, max_positions=600)),
    "captioner": ("captioner_rnn", captioner.Config(**SIZES, vocab=300, image_size=32)),
    MARKUP: ("gpt2", gpt2.Config(**SIZES, vocab=300, max_positions=64)),
}


def rooms() -> dict[str, ModelSession]:
    """A reader, a writer, an encoder-decoder and one that sees, all of which know bytes; the last is named to do harm."""
    words = train_tokenizer([], "bytes")
    found = {}
    for name, (family, config) in CONFIGS.items():
        model = loud(new(family, replace(config, vocab=words.vocab)))
        model.tokenizer = words
        found[name] = ModelSession(model, name)
    return found


@contextmanager
def serving(rooms: dict[str, ModelSession], shelf: RunFolder) -> Iterator[str]:
    """The address of a server that runs in a thread."""
    door = open_listener(0)
    server = uvicorn.Server(uvicorn.Config(make_app(rooms, shelf), log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [door]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        door.close()
