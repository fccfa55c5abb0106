"""`saccade serve RUN`: web viewer for models, served on this machine only."""

import sys
from pathlib import Path
from typing import Annotated

import tyro

from saccade.cli.argument_types import optional_argument

DEFAULT_PORT = 8111


def main(
    run: Annotated[tuple[str, ...], tyro.conf.Positional, optional_argument("[RUN ...]")] = (),
    *,
    port: int = DEFAULT_PORT,
    runs: Annotated[Path | None, optional_argument("DIR")] = None,
    open_browser: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Web viewer for models: attention maps of your texts, head ablation and comparison, lessons, and learning curves.

    The viewer is served on 127.0.0.1 only and needs no network. Ctrl-C stops it.

    saccade serve runs/reviews

    saccade serve runs/small runs/large --open-browser

    saccade serve --runs runs

    Args:
        run: Runs or model directories to load; default: none, only lessons and learning curves.
        port: Port to listen on; 0 takes any free port.
        runs: Directory of runs to compare; default: the directory that contains the first run.
        open_browser: Open the viewer in a browser.
    """
    from saccade.cli.exit_codes import run_command

    return run_command("serve", lambda: serve_models(run, port, runs, open_browser=open_browser))


def serve_models(
    run_names: tuple[str, ...], port: int, runs: Path | None, *, open_browser: bool, query: dict[str, str] | None = None
) -> int:
    """Load the models and serve the viewer until Ctrl-C."""
    from saccade.cli.inputs import suggest_near_runs
    from saccade.errors import UsageError
    from saccade.serving.app import make_app
    from saccade.serving.runs import RunFolder
    from saccade.serving.server import MAX_PORT, open_listener, run_server
    from saccade.serving.session import ModelSession

    if not 0 <= port <= MAX_PORT:  # before models are loaded
        raise UsageError(f"--port is {port}; it must be from 1 to {MAX_PORT:,}, or 0 for any free port.")
    sessions: dict[str, ModelSession] = {}
    for name in run_names:
        print(f"saccade serve: loading {name}", file=sys.stderr)
        with suggest_near_runs(name):
            session = ModelSession(name)
        sessions[session.name if session.name not in sessions else name] = session
        if (reason := session.describe()["unavailable_reason"]) is not None:
            print(f"saccade serve: {name} is not available under Look: {reason}", file=sys.stderr)
    folder = runs or (Path(run_names[0]).resolve().parent if run_names else None)
    print_address = lambda address: print(f"saccade serve: {address}  (Ctrl-C stops it)", flush=True)
    try:
        listener = open_listener(port)
    except ValueError as error:
        raise UsageError(str(error)) from error
    run_server(make_app(sessions, RunFolder(folder)), listener, print_address, open_browser=open_browser, query=query)
    return 0
