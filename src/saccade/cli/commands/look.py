"""`saccade look RUN TEXT`: attention maps of a model, head by head, as a summary, a plot, an HTML page or JSON."""

import json as json_text
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from saccade.cli.argument_types import FileFlag, RunArgument, TextArguments, optional_argument

if TYPE_CHECKING:
    from saccade.explain.faithfulness import Faithfulness
    from saccade.explain.maps import AttentionMaps
    from saccade.explain.word_alignment import Alignment, AlignmentHead


DROPPED_TOKENS_NOTE = (
    "special tokens are left out; the other weights are not renormalized, so the rows no longer sum to one."
)


@dataclass(frozen=True)
class LookOutputs:
    """Output files and formats, besides the summary."""

    html: Annotated[str, optional_argument("FILE")] = ""
    """Self-contained HTML page with every attention map."""
    png: Annotated[str, optional_argument("FILE")] = ""
    """Plot of the attention maps as .png, .svg or .pdf, by the suffix of the file."""
    safetensors: Annotated[str, optional_argument("FILE")] = ""
    """Attention maps as safetensors, for saccade.explain.maps.AttentionMaps.load."""
    out: Annotated[str, optional_argument("DIR")] = ""
    """Output directory of the pruned model (--prune), which must not exist yet."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print JSON: the prediction, the tokens and the weights of every head."""


@dataclass(frozen=True)
class LookSelection:
    """Layers, heads and tokens to show, and generation."""

    layer: Annotated[tuple[int, ...], optional_argument("[INT ...]")] = ()
    """Layers to show, from 0; -1 is the last. Default: all."""
    head: Annotated[tuple[int, ...], optional_argument("[INT ...]")] = ()
    """Heads to show, from 0. Default: all."""
    query: Annotated[tuple[int, ...], optional_argument("[INT ...]")] = ()
    """Query tokens to show (rows of the map), from 0. Default: all."""
    merge_subwords: tyro.conf.FlagCreatePairsOff[bool] = False
    """Merge subword tokens into words."""
    drop_special_tokens: tyro.conf.FlagCreatePairsOff[bool] = False
    """Leave out special tokens such as [CLS] and [SEP], which often have the largest weights; the others keep their weights."""
    beams: int = 1
    """Number of beams if the model generates text; the best text is shown. 1 disables beam search."""
    max_new_tokens: int = 0
    """Maximum number of tokens to generate; 0: 24 to continue a text, otherwise the limit of the task."""


@dataclass(frozen=True)
class LookExtras:
    """Further analyses: alignment, faithfulness, ablation, pruning."""

    align: tyro.conf.FlagCreatePairsOff[bool] = False
    """Word alignment of a translation, as source-target pairs (0-0 1-2) and as a matrix in --html and --png."""
    gold_alignments: Annotated[str, optional_argument("FILE")] = ""
    """Gold alignments (source, target, alignment), to choose the head that aligns; without text, print that head."""
    faithfulness: tyro.conf.FlagCreatePairsOff[bool] = False
    """Faithfulness: does the prediction depend on the attended tokens, per layer? Measured by gradients and by deletion."""
    compare_word: Annotated[str, optional_argument("WORD")] = ""
    """Compare the representations of this word in two texts, layer by layer."""
    ablate: tyro.conf.FlagCreatePairsOff[bool] = False
    """Head ablation: drop in the score of the run without each head and layer; takes no text."""
    data: FileFlag = ()
    """Labeled data for --ablate; default: the held-out data of the run."""
    max_examples: int = 100
    """Maximum number of examples for --ablate."""
    bootstrap_samples: int = 40
    """Number of bootstrap samples for the confidence intervals of --ablate."""
    architecture: tyro.conf.FlagCreatePairsOff[bool] = False
    """Plot the position encodings and the attention patterns of the model; takes no text."""
    prune: Annotated[tuple[str, ...], optional_argument("LAYER.HEAD")] = ()
    """Heads to prune, such as 0.3 1.2 or cross.1.0; takes no text, and writes a smaller model to --out."""


def main(
    run: RunArgument,
    text: TextArguments = (),
    *,
    selection: tyro.conf.OmitArgPrefixes[LookSelection] = LookSelection(),
    extras: Annotated[tyro.conf.OmitArgPrefixes[LookExtras], tyro.conf.arg(name="analysis")] = LookExtras(),
    outputs: Annotated[tyro.conf.OmitArgPrefixes[LookOutputs], tyro.conf.arg(name="output")] = LookOutputs(),
) -> int:
    """Attention maps of a model, head by head, and analyses of its heads. Without a text, open the web viewer.

    saccade look runs/reviews

    saccade look runs/reviews "What a lovely film." --html looks.html

    saccade look runs/pairs "A man sleeps." "Somebody rests." --layer -1 --head 3 --png head.png

    saccade look runs/dates "5 juin 2030" --align

    saccade look runs/base "the bank of the river" "the bank raised its rates" --compare-word bank

    saccade look runs/reviews --ablate --layer 0

    saccade look runs/reviews --architecture --png barcode.png

    saccade look runs/reviews --prune 0.3 1.2 --out runs/smaller

    Args:
        run: A run, or a model directory.
        text: One text, or two: a text pair, or the source and target of a generation; a file for a model of images or recordings.
        selection: Layers, heads and tokens to show, and generation.
        extras: Further analyses: alignment, faithfulness, ablation, pruning.
        outputs: Output files and formats, besides the summary.
    """
    from saccade.cli.exit_codes import run_command

    def work() -> int:
        _check_flags(text, selection, extras, outputs)
        if extras.prune:
            from saccade.cli.prune_heads import write_pruned_model

            return write_pruned_model(run, extras.prune, outputs.out, as_json=outputs.json)
        if extras.ablate or extras.compare_word or extras.architecture:
            from saccade.cli.look_extras import compare_word_contexts, print_head_importance, show_architecture

            files = (outputs.html, outputs.png)
            if extras.architecture:
                return show_architecture(run, *files, as_json=outputs.json)
            if extras.ablate:
                return print_head_importance(run, selection, extras, *files, as_json=outputs.json)
            return compare_word_contexts(run, text, extras.compare_word, *files, as_json=outputs.json)
        if extras.gold_alignments and not text:
            return _print_alignment_head(run, selection, extras.gold_alignments, outputs.json)
        return _look_at_text(run, text, selection, extras, outputs)

    def work_with_suggestions() -> int:
        from saccade.cli.commands.serve import serve_models
        from saccade.cli.inputs import suggest_near_runs

        if not text and (selection, extras, outputs) == (LookSelection(), LookExtras(), LookOutputs()):
            return serve_models((run,), 0, None, open_browser=True)
        with suggest_near_runs(run):
            return work()

    return run_command("look", work_with_suggestions)


def _check_flags(text: tuple[str, ...], selection: LookSelection, extras: LookExtras, outputs: LookOutputs) -> None:
    """Raise a UsageError for flags that are incomplete or contradict each other."""
    from saccade.errors import UsageError

    if extras.prune and (text or extras.ablate):
        raise UsageError("--prune takes no text and no --ablate; run saccade look --ablate before or after it.")
    if outputs.out and not extras.prune:
        raise UsageError("--out is the directory of --prune; use --html, --png or --safetensors for attention maps.")
    if extras.ablate and text:
        raise UsageError("--ablate evaluates heads on a dataset and takes no text; pass the examples with --data.")
    if extras.architecture and (text or extras.ablate or extras.compare_word):
        raise UsageError("--architecture plots the model alone; leave the text, --compare-word and --ablate out.")
    if outputs.safetensors and (extras.architecture or extras.ablate or extras.compare_word):
        raise UsageError(
            "--safetensors stores attention maps of a text; use --html, --png or --json with --architecture, --compare-word and "
            "--ablate."
        )
    if selection.query and extras.align:
        raise UsageError("--align aligns every target word; leave --query out.")
    if extras.compare_word and len(text) != 2:
        raise UsageError(f"--compare-word compares a word in two texts; got {len(text)}.")
    if extras.gold_alignments and selection.head:
        raise UsageError("--gold-alignments chooses the head; leave --head out.")
    if not (extras.ablate or extras.prune or extras.gold_alignments or extras.architecture) and not 1 <= len(text) <= 2:
        raise UsageError(f"Got {len(text)} texts; give one, or two (a text pair, or source and target).")
    if selection.max_new_tokens < 0:
        raise UsageError(
            f"--max-new-tokens is {selection.max_new_tokens}; it must be 0 (the limit of the task) or more."
        )
    if min(extras.max_examples, extras.bootstrap_samples) < 2:
        raise UsageError(
            f"--max-examples is {extras.max_examples} and --bootstrap-samples {extras.bootstrap_samples}; a confidence interval "
            "needs at least 2 of each."
        )
    _check_output_paths(outputs)


def _check_output_paths(outputs: LookOutputs) -> None:
    """Check the paths and suffixes of the output files, before the model is loaded."""
    from pathlib import Path

    from saccade.errors import UsageError

    kinds = {"html": (".html", ".htm"), "png": (".png", ".svg", ".pdf"), "safetensors": ()}
    for flag, suffixes in kinds.items():
        path = Path(getattr(outputs, flag))
        if not getattr(outputs, flag):
            continue
        if path.is_dir():
            example = path / f"look{suffixes[0] if suffixes else '.safetensors'}"
            raise UsageError(f"--{flag} {path}: is a directory; name a file in it, such as {example}.")
        if suffixes and path.suffix.lower() not in suffixes:
            raise UsageError(f"--{flag} {path}: the file name must end in {' or '.join(suffixes)}.")


def _look_at_text(
    run: str, text: tuple[str, ...], selection: LookSelection, extras: LookExtras, outputs: LookOutputs
) -> int:
    from saccade.decoding.config import GenerationConfig
    from saccade.explain.look import look
    from saccade.explain.text_summary import format_extra_lines, format_summary, to_json
    from saccade.explain.word_alignment import align_words

    source = text[0] if len(text) == 1 else (text[0], text[1])
    head = _choose_alignment_head(run, selection, extras.gold_alignments)[0] if extras.gold_alignments else None
    decoding = GenerationConfig(beams=selection.beams, max_new_tokens=selection.max_new_tokens or None)
    layers, heads, queries = selection.layer or None, selection.head or None, selection.query or None
    maps = look(run, source, layers=layers, heads=heads, queries=queries, decoding=decoding)
    alignment = align_words(maps, head) if extras.align or head else None
    if selection.drop_special_tokens:
        maps = maps.drop_special_tokens()
        print(f"saccade look: {DROPPED_TOKENS_NOTE}", file=sys.stderr)
    maps = maps.merge_subwords() if selection.merge_subwords else maps
    faithfulness = _measure_faithfulness(run, source, decoding) if extras.faithfulness else []
    for line in _write_files(maps, alignment, faithfulness, outputs):
        print(f"saccade look: {line}", file=sys.stderr)
    if outputs.json:
        print(to_json(maps, alignment, faithfulness))
    else:
        print("\n".join([*format_summary(maps), *format_extra_lines(alignment, faithfulness)]))
    return 0


def _choose_alignment_head(run: str, selection: LookSelection, file: str) -> "tuple[AlignmentHead, str]":
    from saccade.cli.alignments import choose_alignment_head
    from saccade.explain.inputs import open_with_task

    return choose_alignment_head(open_with_task(run)[1], file, selection.layer or None)


def _print_alignment_head(run: str, selection: LookSelection, file: str, as_json: bool) -> int:
    head, message = _choose_alignment_head(run, selection, file)
    record = {"layer": head.layer, "head": head.head, "is_shifted": head.is_shifted}
    print(json_text.dumps(record) if as_json else message)
    return 0


def _measure_faithfulness(run: str, text: Any, decoding: Any) -> "list[Faithfulness]":
    """Measure how well the mean attention of each layer agrees with the attribution of the prediction to input tokens."""
    from saccade.explain.faithfulness import attribute_tokens, measure_faithfulness, select_testable_maps

    attributions = attribute_tokens(run, text, decoding)
    return [measure_faithfulness(attributions, maps) for maps in select_testable_maps(attributions)]


def _write_files(
    maps: "AttentionMaps", alignment: "Alignment | None", faithfulness: "list[Faithfulness]", outputs: LookOutputs
) -> list[str]:
    """Write the requested files; returns a line about each."""
    from pathlib import Path

    lines = []
    if outputs.html:
        from saccade.explain.html_report import make_alignment_section, write_html_report
        from saccade.explain.report_sections import make_faithfulness_section

        sections = [*make_alignment_section(alignment), *make_faithfulness_section(faithfulness)]
        write_html_report(maps, Path(outputs.html), extra_sections=sections)
        lines.append(f"wrote {outputs.html}")
    if outputs.png:
        from saccade.cli.font_warnings import report_missing_fonts
        from saccade.explain.plots import save_alignment_plot, save_attention_plot

        path = Path(outputs.png)
        with report_missing_fonts("look"):
            plot = save_attention_plot(maps, path) if alignment is None else save_alignment_plot(alignment, path)
        lines.append(f"wrote {plot}")
    if outputs.safetensors:
        lines.append(f"wrote {maps.save(outputs.safetensors)}")
    return lines
