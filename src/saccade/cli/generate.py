"""`saccade generate RUN [TEXT]`: go on with a text."""

import sys

import tyro


def main(
    run: tyro.conf.Positional[str],
    text: tyro.conf.Positional[str] = "",
    *,
    length: int = 200,
    temperature: float = 0.8,
    top_k: int = 0,
    top_p: float = 0.95,
    seed: int = 0,
) -> int:
    """Go on with a text, token by token, as a language model would.

    saccade generate runs/shakespeare "ROMEO:" --length 400

    Args:
        run: A run, or any directory with a writer.
        text: How the text begins.
        length: The most tokens to write.
        temperature: Below 1 the likely is likelier; 0 takes the best token each time.
        top_k: Draw among so many best tokens; 0: all.
        top_p: Draw among the fewest tokens that have this share together.
        seed: The same seed writes the same.
    """
    from saccade.cli.running import guarded

    return guarded("generate", lambda: _generate(run, text, length, temperature, top_k, top_p, seed))


def _generate(run: str, text: str, length: int, temperature: float, top_k: int, top_p: float, seed: int) -> int:
    from saccade.data import Batch, Text
    from saccade.decoding.choose import Draw, greedy
    from saccade.decoding.loop import write
    from saccade.tasks.opening import open_run
    from saccade.tasks.task import need_tokenizer
    from saccade.text.stream import Stream

    task, model = open_run(run)
    if task.name != "language":
        raise ValueError(f"{run} was made to {task.name}; a language model is needed. Say saccade predict {run} TEXT.")
    tokenizer = need_tokenizer(model)
    ids = tokenizer.encode(text or "\n", special=False).ids
    limit = model.limit
    if limit is not None:
        ids = ids[-max(1, limit - length) :]
        length = min(length, limit - len(ids))
    choose = greedy if temperature == 0 else Draw(temperature, top_k, top_p, seed)
    stream = Stream(tokenizer)
    sys.stdout.write(text)
    ends = [] if tokenizer.end is None else [tokenizer.end]
    for tokens, going in write(model, Batch(Text.of([ids])), choose, stop=ends, limit=length):
        if bool(going[0]):
            sys.stdout.write(stream.feed([int(tokens[0])]))
            sys.stdout.flush()
    print(stream.end())
    return 0
