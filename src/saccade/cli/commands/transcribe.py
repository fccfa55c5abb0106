"""`saccade transcribe RUN FILE...`: the text that is spoken in each recording, as lines, JSON or subtitles."""

import json as json_text
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from saccade.cli.argument_types import ColumnsFlag, FileFlag, RunArgument, optional_argument
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.tasks.interface.predictions import TimedWord, TranscriptPrediction

MAX_SUBTITLE_CHARACTERS = 42  # of one line, as is usual on television
MAX_PAUSE_SECONDS = 0.8  # a longer pause ends a subtitle
RecordingArguments = Annotated[tuple[str, ...], tyro.conf.Positional, optional_argument("FILE ...")]


def main(
    run: RunArgument,
    recording: RecordingArguments = (),
    *,
    data: FileFlag = (),
    columns: ColumnsFlag = "",
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
    srt: tyro.conf.FlagCreatePairsOff[bool] = False,
    word_times: tyro.conf.FlagCreatePairsOff[bool] = False,
    decoding: Annotated[str | None, optional_argument("NAME")] = None,
    beam_size: Annotated[int | None, optional_argument("INT")] = None,
    language_model: Annotated[str | None, optional_argument("RUN")] = None,
    lm_weight: Annotated[float | None, optional_argument("FLOAT")] = None,
) -> int:
    """Speech recognition: the text that is spoken in each recording, one line per file.

    saccade transcribe runs/speech meeting.wav

    saccade transcribe runs/speech lecture.flac --srt > lecture.srt

    saccade transcribe runs/speech *.flac --beam-size 8 --language-model runs/letters --json

    Args:
        run: A run of the task transcribe.
        recording: Sound files: WAV or, with the package soundfile, FLAC, Ogg, MP3 or AIFF.
        data: Data files that name recordings, in any format that training reads.
        columns: Columns of the data by role: audio=path.
        json: Print one JSON object per line, with the time of each word in seconds.
        srt: Print subtitles in the SubRip format (SRT), for one recording.
        word_times: Print a line for each word: its start and its end in seconds, and the word.
        decoding: How a text is found: ctc, attention or rescoring. Default: that of the run.
        beam_size: Number of beams of CTC decoding; 1 is greedy decoding. Default: that of the run.
        language_model: A run of the task language with a tokenizer of characters, which scores the beams (shallow fusion).
        lm_weight: Weight of the language model. Default: that of the run.
    """
    from saccade.cli.exit_codes import run_command

    settings = {
        "decoding": decoding,
        "beam_size": beam_size,
        "language_model": language_model,
        "lm_weight": lm_weight,
    }
    changes = {name: value for name, value in settings.items() if value is not None}

    def work() -> int:
        if srt and (json or word_times or data or len(recording) != 1):
            raise UsageError(
                "--srt makes the subtitles of one recording; give one file, and no --json, --word-times or --data."
            )
        for prediction in _predict(run, recording, data, columns, changes):
            if json:
                print(json_text.dumps(prediction.as_dict(), ensure_ascii=False), flush=True)
            elif srt:
                print(format_srt(prediction.words), end="")
            elif word_times:
                for word in prediction.words:
                    print(f"{word.start:.2f}\t{word.end:.2f}\t{word.text}")
            else:
                print(prediction, flush=True)
        return 0

    return run_command("transcribe", work)


def _predict(
    run: str, recordings: Sequence[str], data: Sequence[str], columns: str, changes: dict[str, Any]
) -> "Iterator[TranscriptPrediction]":
    from saccade.cli.inputs import open_run_for_task, read_examples
    from saccade.tasks.interface.predictions import TranscriptPrediction
    from saccade.tasks.predict import predict

    if not recordings and not data:
        raise UsageError("Give the sound files to transcribe, or --data with a table of them.")
    opened = open_run_for_task(run, "transcribe")
    opened.change_settings(changes)
    outputs, examples = predict(opened.task, opened.model, read_examples(opened.task, recordings, data, columns))
    for output, example in zip(outputs, examples, strict=True):
        prediction = opened.task.to_prediction(output, example)
        assert isinstance(prediction, TranscriptPrediction)
        yield prediction


def format_srt(words: "Sequence[TimedWord]") -> str:
    """Words as subtitles in the SubRip format: a new one after a pause, or if a line would be too long.

    >>> from saccade.tasks.interface.predictions import TimedWord
    >>> print(format_srt([TimedWord("go", 0.5, 0.75), TimedWord("home", 3661.0, 3661.5)]), end="")
    1
    00:00:00,500 --> 00:00:00,750
    go
    <BLANKLINE>
    2
    01:01:01,000 --> 01:01:01,500
    home
    <BLANKLINE>
    """
    groups: list[list[TimedWord]] = []
    for word in words:
        line = " ".join(other.text for other in (*(groups[-1] if groups else ()), word))
        if not groups or word.start - groups[-1][-1].end > MAX_PAUSE_SECONDS or len(line) > MAX_SUBTITLE_CHARACTERS:
            groups.append([])
        groups[-1].append(word)
    return "".join(
        f"{number}\n{_format_time(group[0].start)} --> {_format_time(group[-1].end)}\n"
        f"{' '.join(word.text for word in group)}\n\n"
        for number, group in enumerate(groups, 1)
    )


def _format_time(seconds: float) -> str:
    milliseconds = round(seconds * 1000)
    hours, rest = divmod(milliseconds, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02},{rest % 1000:03}"
