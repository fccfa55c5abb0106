"""`saccade train TASK|RECIPE`: train a model on a data file; the same command again resumes training."""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from saccade.cli import train_flags as flags
from saccade.cli.argument_types import DirectoryFlag, optional_argument
from saccade.errors import UsageError
from saccade.training import exit_report

if TYPE_CHECKING:
    from saccade.recipes.promise import PromiseResult
    from saccade.training.events import RunResult
    from saccade.training.prepare import PreparedRun

HELP_TEXT = """Train a model on a data file; run the same command again to resume.

saccade train label --data reviews.tsv --out runs/reviews

saccade train translate --data train.en train.de --family rnn --model.width 128

saccade train label --data reviews.tsv --folds 5 --group-by author

saccade train tag --data wnut17/ --model minilm --train.epochs 5 --train.lr 2e-4

Without --data, a task trains on its built-in sample. A file named dev, valid or test is held out; without one, a tenth of the
records is held out as dev, which selects the checkpoint. Of 2,000 records or more, another tenth is held out as test, which is
scored once at the end. A recipe is one that saccade recipes lists, or the config.toml of a run. --model names a pretrained model
(a run, a directory, a hub name), --family the architecture of a new one (saccade models). The model, the task and training have
settings, too: saccade train TASK --help lists them with their values."""


@dataclass(frozen=True)
class TrainFlags(flags.BaseTrainFlags):
    """Flags of `saccade train`."""

    out: DirectoryFlag = None
    """Directory of the run; default: runs/TASK."""
    dry_run: flags.Flag = False
    """Dry run: report the size of the model, and the time and memory of three training steps; write nothing."""
    print_config: flags.Flag = False
    """Print every setting with its value and its source, and exit."""
    folds: Annotated[int, optional_argument("INT")] = 0
    """Cross-validation with this many folds: each is the test set of a run trained on the others; default: one run."""
    group_by: Annotated[str, optional_argument("COLUMN")] = ""
    """Group column, such as author: records with the same value stay in one split or fold; default: by equal inputs."""
    processes: int = 1
    """Number of local processes for data-parallel training; a killed process is restarted."""


def call(name: str, argv: Sequence[str]) -> int:
    """Run the command; `argv` is what follows its name."""
    ended = exit_report.read_exit_report()
    if ended is not None and ended.is_final:  # restarted by a launcher after a final result
        return ended.exit_code
    exit_report.stop_with_launcher()
    args, dotted, wants_help = flags.parse_command(name, argv, TrainFlags, HELP_TEXT)
    if args.group_by:
        dotted += ["--train.group-by", args.group_by]
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
    """Launch the command in several processes, after a check of its flags, so that errors are printed once."""
    if args.processes < 1:
        raise UsageError(f"--processes is {args.processes}; it must be at least 1.")
    if args.folds:
        raise UsageError("--folds trains one fold after the other in one process; leave out --processes.")
    if (world_size := exit_report.get_world_size()) > 1:
        raise UsageError(f"--processes is {args.processes}, but this is already one of {world_size} processes.")
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

    started_at = time.monotonic()
    request = flags.make_request("train", args, dotted)
    is_main = exit_report.get_rank() == 0
    restarts, max_restarts = exit_report.get_restart_counts()
    if restarts and is_main:
        args.log(f"a process was lost; restarted ({restarts} of at most {max_restarts} times)")
    out = args.out or Path("runs") / (request.recipe.name or request.job.task)
    if args.folds and not (args.print_config or args.dry_run):
        from saccade.cli.train_folds import train_folds

        return train_folds(request, out, args.folds, as_json=args.json, log=args.log)
    if is_main and not (args.print_config or args.dry_run):
        check_unlocked(out)  # before the data is read
    prepared = request.prepare(args.log if is_main else lambda text: None)
    if args.print_config:
        sources = list_setting_sources(prepared, request)
        print(json.dumps(sources) if args.json else _format_toml(sources))
        return 0
    if args.dry_run:
        from saccade.training.dry_run import dry_run

        report = dry_run(prepared)
        print(json.dumps(dict(line.split(maxsplit=1) for line in report.splitlines())) if args.json else report)
        return 0
    return _run_training(prepared, out, request, as_json=args.json, started_at=started_at)


def _run_training(
    prepared: "PreparedRun", out: Path, request: flags.TrainRequest, *, as_json: bool, started_at: float
) -> int:
    from saccade.cli.train_progress import TrainProgress
    from saccade.recipes import promise
    from saccade.training.run import RunResult, run_training

    if exit_report.get_rank():  # only rank 0 prints and writes
        return _exit_code([event for event in run_training(prepared, out) if isinstance(event, RunResult)][-1])
    earlier_minutes = promise.read_elapsed_minutes(out) if request.recipe.promise else 0.0
    minutes = lambda: earlier_minutes + (time.monotonic() - started_at) / 60
    result: RunResult | None = None
    verdict: PromiseResult | None = None
    with (
        TrainProgress(out, sys.stderr if as_json else sys.stdout) as progress,
        closing(run_training(prepared, out)) as events,
    ):
        for event in events:
            progress.show(event)
            if isinstance(event, RunResult):  # the last event; the run holds its lock until the generator is closed
                result = event
                verdict = _check_promise(result, out, request, minutes)
    assert result is not None
    if verdict is not None:
        print(verdict.message, file=sys.stderr if as_json else sys.stdout, flush=True)
    if as_json:
        scores = {split: [vars(score) for score in items] for split, items in result.scores.items()}
        record = {"out": str(out), "steps": result.steps, "stop_reason": result.stop_reason, "scores": scores}
        record |= {"notes": list(result.notes)} if result.notes else {}
        print(json.dumps(record | ({} if verdict is None else {"promise": asdict(verdict)})))
    return _exit_code(result)


def _check_promise(
    result: "RunResult", out: Path, request: flags.TrainRequest, minutes: Callable[[], float]
) -> "PromiseResult | None":
    """Compare a finished run with the promise of its recipe, and record the result in the run."""
    from saccade.recipes import promise

    if result.signal is not None or request.recipe.promise is None:
        return None
    changed = promise.find_changed_flags(request.recipe, request.job, request.overrides)
    scores = result.scores if changed else promise.add_promised_score(request.recipe, result.scores, out)
    elapsed = minutes()
    verdict = promise.check_promise(request.recipe, scores, elapsed, changed)
    promise.write_timing(out, elapsed, verdict)
    return verdict


def _exit_code(result: "RunResult") -> int:
    return 0 if result.signal is None else 128 + result.signal


def list_setting_sources(ready: "PreparedRun", request: flags.TrainRequest) -> dict[str, dict[str, dict[str, Any]]]:
    """Every setting by table, with its value and its source."""
    configs = {"model": ready.model.config, "task": ready.task.config, "train": ready.config}

    def source(table: str, name: str, value: Any) -> str:
        if name in request.overrides[table]:
            return "your flag"
        if name in request.recipe.tables[table]:
            return f"recipe {request.recipe.name}".rstrip()
        if table == "model" and request.job.model:
            return request.job.model
        chosen = getattr(ready.defaults, table, {}).get(name) == value or value != getattr(type(configs[table])(), name)
        return "chosen for this task and data" if chosen else "default"

    return {
        table: {name: {"value": value, "from": source(table, name, value)} for name, value in asdict(config).items()}
        for table, config in configs.items()
    }


def _format_toml(sources: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Settings as TOML, with the source of each value as a comment."""
    tables = []
    for table, settings in sources.items():
        lines = [f"{_format_toml_line(name, item['value']):34}  # {item['from']}" for name, item in settings.items()]
        tables.append("\n".join([f"[{table}]", *lines]))
    return "\n\n".join(tables)


def _format_toml_line(name: str, value: Any) -> str:
    """A setting as a line of TOML; None, which TOML lacks, becomes a comment.

    >>> _format_toml_line("norm_first", True), _format_toml_line("sizes", (1, 2)), _format_toml_line("inner", None)
    ('norm_first = true', 'sizes = [1, 2]', '# inner is not set')
    """
    if value is None:
        return f"# {name} is not set"
    return f"{name} = {json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)}"
