"""`saccade serve RUN`: the page where a model can be looked at, on this machine alone."""

import sys
from pathlib import Path
from typing import Annotated

import tyro

PORT = 8111


def main(
    run: tyro.conf.Positional[tuple[str, ...]] = (),
    *,
    port: int = PORT,
    runs: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None,
    open: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """A page to look at a model with: type, see where every head looks, switch heads off, compare; lessons; curves of runs.

    It is served on 127.0.0.1, needs no network, and Ctrl-C ends it.

    saccade serve runs/reviews

    saccade serve runs/small runs/large --open

    saccade serve --runs runs

    Args:
        run: One or more runs, or directories with a model; none: the lessons and the curves alone.
        port: Where it listens; 0 takes any port that is free.
        runs: The folder whose runs are compared; if not given, the one that holds the first run.
        open: Open it in a browser.
    """
    from saccade.cli.running import guarded

    return guarded("serve", lambda: serve(run, port, runs, show=open))


def serve(
    names: tuple[str, ...], port: int, runs: Path | None, *, show: bool, ask: dict[str, str] | None = None
) -> int:
    """Load the models, then serve until Ctrl-C."""
    from saccade.cli.settings import Wrong
    from saccade.serving.app import make
    from saccade.serving.room import Room
    from saccade.serving.shelf import Shelf
    from saccade.serving.start import HIGHEST_PORT, listening, start

    if not 0 <= port <= HIGHEST_PORT:  # before models are loaded
        raise Wrong(f"--port: {port} is no port; they go from 1 to {HIGHEST_PORT:,}, and 0 takes any that is free.")
    rooms: dict[str, Room] = {}
    for name in names:
        print(f"saccade serve: loading {name}", file=sys.stderr)
        room = Room(name)
        rooms[room.name if room.name not in rooms else name] = room
        if (reason := room.about()["unavailable"]) is not None:
            print(f"saccade serve: {name} is not offered under Look: {reason}", file=sys.stderr)
    folder = runs or (Path(names[0]).resolve().parent if names else None)
    told = lambda address: print(f"saccade serve: {address}  (Ctrl-C ends it)", flush=True)
    try:
        door = listening(port)
    except ValueError as error:
        raise Wrong(str(error)) from error
    start(make(rooms, Shelf(folder)), door, told, show=show, ask=ask)
    return 0
