"""`saccade train TASK|RECIPE`: a file in, a model out. The same command again goes on where it stopped."""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from saccade.cli import settings as flags
from saccade.training import lastwords

if TYPE_CHECKING:
    from saccade.cli.promise import Kept
    from saccade.training.events import Result
    from saccade.training.job import Ready

HELP = """Train a model on your data: a file in, a model out. The same command again goes on where it stopped.

saccade train label --data reviews.tsv --out runs/reviews

saccade train translate --data train.en train.de --model rnn --model.width 128

saccade train tag --data wnut17/ --model runs/minilm --train.epochs 5 --train.rate 2e-4

Without --data a task trains on the package's own sample. A file named dev, valid or test is held out; without one, a tenth of
the data is. --model is a family (saccade models), a run, or a name on the hub. Every number has a flag:
saccade train TASK --settings lists them."""


@dataclass(frozen=True)
class Call(flags.Call):
    """What is not a setting of the model, the task or the training."""

    out: Path | None = None
    """The directory of the run; none: runs/TASK."""
    dry_run: flags.Flag = False
    """Say what would happen, with memory and time measured on three steps; write nothing."""
    print_config: flags.Flag = False
    """Print every setting and where it came from."""
    processes: int = 1
    """Processes of this machine that share every step; one that is killed is started again."""


def call(name: str, argv: Sequence[str]) -> int:
    """Run the command; `argv` is what follows its name."""
    ended = lastwords.left()
    if ended is not None and ended.final:  # started again by a launcher, though there is nothing to be done any more
        return ended.code
    lastwords.stop_with_launcher()
    plain, dotted = flags.split(argv)
    asked = tyro.cli(Call, prog="saccade train", description=HELP, args=plain)
    from saccade.cli.running import guarded

    if asked.processes != 1 and not (asked.dry_run or asked.print_config or asked.settings):
        return guarded("train", lambda: _launch(asked, dotted, argv))
    code = guarded("train", lambda: _train(asked, dotted))
    if code in (130, 143):
        lastwords.leave(lastwords.Words(code))
    return code


def _launch(asked: Call, dotted: list[str], argv: Sequence[str]) -> int:
    """The same command in several processes; what is wrong with it is said once, here."""
    if asked.processes < 1 or lastwords.size() > 1:
        wrong = (
            "at least 1 is needed" if asked.processes < 1 else f"this is one of {lastwords.size()} processes already"
        )
        raise flags.Wrong(f"--processes is {asked.processes}; {wrong}.")
    flags.request("train", asked, dotted)
    from saccade.training.world.launch import launch

    return launch(asked.processes, ["train", *_without(argv, "--processes")])


def _without(argv: Sequence[str], flag: str) -> list[str]:
    """
    >>> _without(["label", "--processes", "2", "--json", "--processes=3"], "--processes")
    ['label', '--json']
    """
    kept = [word for i, word in enumerate(argv) if flag not in (word, argv[i - 1] if i else "")]
    return [word for word in kept if not word.startswith(f"{flag}=")]


def _train(asked: Call, dotted: list[str]) -> int:
    from saccade.training.run_lock import check_unlocked

    began = time.monotonic()
    request = flags.request("train", asked, dotted)
    first = lastwords.rank() == 0
    again, most = lastwords.started_again()
    if again and first:
        asked.say(f"a process was lost; started again ({again} of at most {most} times)")
    out = asked.out or Path("runs") / (request.recipe.name or request.job.task)
    if first and not (asked.print_config or asked.dry_run):
        check_unlocked(out)  # before the data are read
    ready = request.prepare(asked.say if first else lambda text: None)
    if asked.print_config:
        found = sources(ready, request)
        print(json.dumps(found) if asked.json else _tables(found))
        return 0
    if asked.dry_run:
        from saccade.training.dry import rehearse

        told = rehearse(ready)
        print(json.dumps(dict(line.split(maxsplit=1) for line in told.splitlines())) if asked.json else told)
        return 0
    return _run(ready, out, request, as_json=asked.json, began=began)


def _run(ready: "Ready", out: Path, request: flags.Request, *, as_json: bool, began: float) -> int:
    from saccade.cli import promise
    from saccade.cli.progress import Progress
    from saccade.training.run import Result, run

    if lastwords.rank():  # only the first speaks and writes
        return _code([event for event in run(ready, out) if isinstance(event, Result)][-1])
    before = promise.minutes_before(out) if request.recipe.promise else 0.0
    result: Result | None = None
    told: Kept | None = None
    with Progress(out, sys.stderr if as_json else sys.stdout) as progress, closing(run(ready, out)) as events:
        for event in events:
            progress.show(event)
            if isinstance(event, Result):  # the last one; until the next is asked for, the run owns its directory
                result = event
                told = _promised(result, out, request, lambda: before + (time.monotonic() - began) / 60)
    assert result is not None
    if told is not None:
        print(told.said, file=sys.stderr if as_json else sys.stdout, flush=True)
    if as_json:
        scores = {split: [vars(score) for score in found] for split, found in result.scores.items()}
        facts = {"out": str(out), "steps": result.steps, "ended_by": result.why, "scores": scores}
        facts |= {"notes": list(result.notes)} if result.notes else {}
        print(json.dumps(facts | ({} if told is None else {"promise": asdict(told)})))
    return _code(result)


def _promised(result: "Result", out: Path, request: flags.Request, minutes: Callable[[], float]) -> "Kept | None":
    """Whether a finished run keeps what its recipe promises, written down beside it."""
    from saccade.cli import promise

    if result.signal is not None or request.recipe.promise is None:
        return None
    other = promise.changed(request)
    scores = result.scores if other else promise.with_promised(request.recipe, result.scores, out)
    taken = minutes()
    kept = promise.judge(request.recipe, scores, taken, other)
    promise.write_took(out, taken, kept)
    return kept


def _code(result: "Result") -> int:
    return 0 if result.signal is None else 128 + result.signal


def sources(ready: "Ready", request: flags.Request) -> dict[str, dict[str, dict[str, Any]]]:
    """Every setting by table, its value, and where that came from."""
    from saccade.training.job import is_stored

    configs = {"model": ready.model.config, "task": ready.task.config, "train": ready.config}
    stored = is_stored(request.job.model)

    def source(table: str, name: str, value: Any) -> str:
        if name in request.given[table]:
            return "your flag"
        if name in request.recipe.tables[table]:
            return f"recipe {request.recipe.name}".rstrip()
        if table == "model" and stored:
            return request.job.model
        chosen = getattr(ready.chosen, table, {}).get(name) == value or value != getattr(type(configs[table])(), name)
        return "chosen for this task and data" if chosen else "default"

    return {
        table: {name: {"value": value, "from": source(table, name, value)} for name, value in asdict(config).items()}
        for table, config in configs.items()
    }


def _tables(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """As TOML, each source as a comment."""
    parts = []
    for table, settings in found.items():
        lines = [f"{_toml(name, item['value']):34}  # {item['from']}" for name, item in settings.items()]
        parts.append("\n".join([f"[{table}]", *lines]))
    return "\n\n".join(parts)


def _toml(name: str, value: Any) -> str:
    """A setting as TOML writes it, which has no word for nothing.

    >>> _toml("norm_first", True), _toml("sizes", (1, 2)), _toml("inner", None)
    ('norm_first = true', 'sizes = [1, 2]', '# inner is not set')
    """
    if value is None:
        return f"# {name} is not set"
    return f"{name} = {json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)}"
