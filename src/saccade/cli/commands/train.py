"""`saccade train TASK|RECIPE`: a file in, a model out. The same command again goes on where it stopped."""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.cli import train_flags as flags
from saccade.cli.argument_types import DirectoryFlag
from saccade.errors import UsageError
from saccade.training import exit_report

if TYPE_CHECKING:
    from saccade.recipes.promise import PromiseResult
    from saccade.training.events import RunResult
    from saccade.training.prepare import PreparedRun

HELP_TEXT = """Train a model on a data file. Run the same command again to resume.

saccade train label --data reviews.tsv --out runs/reviews

saccade train translate --data train.en train.de --model rnn --model.width 128

saccade train tag --data wnut17/ --model runs/minilm --train.epochs 5 --train.lr 2e-4

Without --data, a task trains on its built-in sample. A file named dev, valid or test is held out; without one, a tenth of the
data is. --model is a family (saccade models), a run, or a hub name. Settings of the model, the task and training have
flags, too: saccade train TASK --help lists them with their values."""


@dataclass(frozen=True)
class TrainFlags(flags.BaseTrainFlags):
    """Flags of `saccade train`."""

    out: DirectoryFlag = None
    """Directory of the run; default: runs/TASK."""
    dry_run: flags.Flag = False
    """Dry run: report what training would do, with memory and time measured on three steps; write nothing."""
    print_config: flags.Flag = False
    """Print every setting with its value and its source."""
    processes: int = 1
    """Number of local processes for data-parallel training; a process that is killed is restarted."""


def call(name: str, argv: Sequence[str]) -> int:
    """Run the command; `argv` is what follows its name."""
    ended = exit_report.read_exit_report()
    if ended is not None and ended.is_final:  # started again by a launcher, though there is nothing to be done any more
        return ended.exit_code
    exit_report.stop_with_launcher()
    args, dotted, wants_help = flags.parse_command(name, argv, TrainFlags, HELP_TEXT)
    from saccade.cli.exit_codes import run_command

    if wants_help:
        return run_command(name, lambda: flags.print_help(name, args, dotted))
    if args.processes != 1 and not (args.dry_run or args.print_config):
        return run_command("train", lambda: _launch_processes(args, dotted, argv))
    code = run_command("train", lambda: _prepare_and_train(args, dotted))
    if code in (130, 143):
        exit_report.write_exit_report(exit_report.ExitReport(code))
    return code


def _launch_processes(args: TrainFlags, dotted: list[str], argv: Sequence[str]) -> int:
    """The same command in several processes; what is wrong with it is said once, here."""
    if args.processes < 1 or exit_report.get_world_size() > 1:
        wrong = (
            "at least 1 is needed"
            if args.processes < 1
            else f"this is one of {exit_report.get_world_size()} processes already"
        )
        raise UsageError(f"--processes is {args.processes}; {wrong}.")
    flags.make_request("train", args, dotted)
    from saccade.training.distributed.launch import launch

    return launch(args.processes, ["train", *_remove_flag(argv, "--processes")])


def _remove_flag(argv: Sequence[str], flag: str) -> list[str]:
    """
    >>> _remove_flag(["label", "--processes", "2", "--json", "--processes=3"], "--processes")
    ['label', '--json']
    """
    kept = [word for i, word in enumerate(argv) if flag not in (word, argv[i - 1] if i else "")]
    return [word for word in kept if not word.startswith(f"{flag}=")]


def _prepare_and_train(args: TrainFlags, dotted: list[str]) -> int:
    from saccade.training.checkpoint.run_lock import check_unlocked

    began = time.monotonic()
    request = flags.make_request("train", args, dotted)
    first = exit_report.get_rank() == 0
    again, most = exit_report.get_restart_counts()
    if again and first:
        args.log(f"a process was lost; started again ({again} of at most {most} times)")
    out = args.out or Path("runs") / (request.recipe.name or request.job.task)
    if first and not (args.print_config or args.dry_run):
        check_unlocked(out)  # before the data are read
    ready = request.prepare(args.log if first else lambda text: None)
    if args.print_config:
        found = list_setting_sources(ready, request)
        print(json.dumps(found) if args.json else _format_toml(found))
        return 0
    if args.dry_run:
        from saccade.training.dry_run import dry_run

        told = dry_run(ready)
        print(json.dumps(dict(line.split(maxsplit=1) for line in told.splitlines())) if args.json else told)
        return 0
    return _run_training(ready, out, request, as_json=args.json, started_at=began)


def _run_training(
    ready: "PreparedRun", out: Path, request: flags.TrainRequest, *, as_json: bool, started_at: float
) -> int:
    from saccade.cli.train_progress import TrainProgress
    from saccade.recipes import promise
    from saccade.training.run import RunResult, run_training

    if exit_report.get_rank():  # only the first speaks and writes
        return _exit_code([event for event in run_training(ready, out) if isinstance(event, RunResult)][-1])
    before = promise.read_elapsed_minutes(out) if request.recipe.promise else 0.0
    result: RunResult | None = None
    told: PromiseResult | None = None
    with (
        TrainProgress(out, sys.stderr if as_json else sys.stdout) as progress,
        closing(run_training(ready, out)) as events,
    ):
        for event in events:
            progress.show(event)
            if isinstance(event, RunResult):  # the last one; until the next is asked for, the run owns its directory
                result = event
                told = _check_promise(result, out, request, lambda: before + (time.monotonic() - started_at) / 60)
    assert result is not None
    if told is not None:
        print(told.message, file=sys.stderr if as_json else sys.stdout, flush=True)
    if as_json:
        scores = {split: [vars(score) for score in found] for split, found in result.scores.items()}
        facts = {"out": str(out), "steps": result.steps, "stop_reason": result.stop_reason, "scores": scores}
        facts |= {"notes": list(result.notes)} if result.notes else {}
        print(json.dumps(facts | ({} if told is None else {"promise": asdict(told)})))
    return _exit_code(result)


def _check_promise(
    result: "RunResult", out: Path, request: flags.TrainRequest, minutes: Callable[[], float]
) -> "PromiseResult | None":
    """Whether a finished run keeps what its recipe promises, written down beside it."""
    from saccade.recipes import promise

    if result.signal is not None or request.recipe.promise is None:
        return None
    other = promise.find_changed_flags(request.recipe, request.job, request.overrides)
    scores = result.scores if other else promise.add_promised_score(request.recipe, result.scores, out)
    taken = minutes()
    kept = promise.check_promise(request.recipe, scores, taken, other)
    promise.write_timing(out, taken, kept)
    return kept


def _exit_code(result: "RunResult") -> int:
    return 0 if result.signal is None else 128 + result.signal


def list_setting_sources(ready: "PreparedRun", request: flags.TrainRequest) -> dict[str, dict[str, dict[str, Any]]]:
    """Every setting by table, its value, and where that came from."""
    from saccade.training.prepare import is_stored_model

    configs = {"model": ready.model.config, "task": ready.task.config, "train": ready.config}
    stored = is_stored_model(request.job.model)

    def source(table: str, name: str, value: Any) -> str:
        if name in request.overrides[table]:
            return "your flag"
        if name in request.recipe.tables[table]:
            return f"recipe {request.recipe.name}".rstrip()
        if table == "model" and stored:
            return request.job.model
        chosen = getattr(ready.defaults, table, {}).get(name) == value or value != getattr(type(configs[table])(), name)
        return "chosen for this task and data" if chosen else "default"

    return {
        table: {name: {"value": value, "from": source(table, name, value)} for name, value in asdict(config).items()}
        for table, config in configs.items()
    }


def _format_toml(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """As TOML, each source as a comment."""
    parts = []
    for table, settings in found.items():
        lines = [f"{_format_toml_line(name, item['value']):34}  # {item['from']}" for name, item in settings.items()]
        parts.append("\n".join([f"[{table}]", *lines]))
    return "\n\n".join(parts)


def _format_toml_line(name: str, value: Any) -> str:
    """A setting as TOML writes it, which has no word for nothing.

    >>> _format_toml_line("norm_first", True), _format_toml_line("sizes", (1, 2)), _format_toml_line("inner", None)
    ('norm_first = true', 'sizes = [1, 2]', '# inner is not set')
    """
    if value is None:
        return f"# {name} is not set"
    return f"{name} = {json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)}"
