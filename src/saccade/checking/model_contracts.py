"""The contracts of a position scheme, a family and a task: what their entries declare, tested on small random models.

A position scheme is tested inside of a decoder; a family by its default config with small sizes; a task on its own sample.
"""

import json
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from saccade.attention import CAUSAL, FULL, Layout, Pattern
from saccade.checking.check import CheckReport
from saccade.checking.contract import TOLERANCE, Requirement, check_contract, compare, join
from saccade.checking.invariants import Outcome
from saccade.data import Batch, Example, Text
from saccade.data.samples import get_sample
from saccade.decoding import teacher_forced_logits
from saccade.metrics import Score
from saccade.models.build import new
from saccade.models.capabilities import Modality
from saccade.models.family import Family
from saccade.models.load import load
from saccade.models.model import Model
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import make_layer
from saccade.parts.multihead_attention import Attention
from saccade.parts.position import PositionEntry
from saccade.parts.stack import Stack
from saccade.parts.state import State
from saccade.tasks.base import Task
from saccade.tasks.needs import find_family
from saccade.tasks.predict import evaluate, predict
from saccade.training.prepare import Job, PreparedRun, prepare

BATCH_SIZE, LENGTH, WIDTH, HEADS, MAX_POSITIONS = 2, 11, 12, 3, 24
VOCAB = 23
SMALL_SIZES = {"vocab": VOCAB, "width": 16, "ffn_width": 17, "max_positions": 16, "dropout": 0.0} | dict.fromkeys(
    ("layers", "decoder_layers", "heads", "kv_heads", "decoder_heads"), 2
)
SMALL_SIZES |= {"head_width": 8, "decoder_ffn_width": 17, "decoder_start_id": 1}
TASK_SIZES = {"width": 32, "layers": 1, "heads": 2, "ffn_width": 64, "dropout": 0.0}
WEIGHT_STD = 0.4  # large enough that every part matters
TRAINING_EXAMPLES, TRAINING_STEPS = 8, 40
LOSS_DROP = 0.8  # the loss after training, as a fraction of the loss before it


# a position scheme
def make_position_stack(entry: PositionEntry, pattern: Pattern) -> Stack:
    """Two layers with the position scheme, in float64."""
    scheme = entry.make(WIDTH, HEADS, MAX_POSITIONS)
    width = WIDTH + scheme.extra_width
    layers = [make_layer(Attention(width, HEADS), FeedForward(width, 17), width=width) for _ in range(2)]
    stack = Stack(layers, pattern, scheme, leave=nn.LayerNorm(width)).double().eval()
    for parameter in stack.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=WEIGHT_STD)
    return stack


def make_vectors() -> Tensor:
    return torch.randn(BATCH_SIZE, LENGTH, WIDTH, dtype=torch.float64)


def check_position_steps(entry: PositionEntry) -> Outcome:
    """Token by token with a cache equals all at once."""
    stack, x, state = make_position_stack(entry, CAUSAL), make_vectors(), State()
    whole = stack(x)
    parts = [stack(x[:, a:b], None, state) for a, b in ((0, 4), (4, 5), (5, 8), (8, LENGTH))]
    return compare(torch.cat(parts, dim=1), whole, "steps of 4, 1, 3 and 3 tokens")


def check_position_padding(entry: PositionEntry) -> Outcome:
    """Padding on either side changes nothing: a position is counted from the first real token."""
    outcomes = []
    for pattern in (FULL, CAUSAL):
        stack, x = make_position_stack(entry, pattern), make_vectors()
        alone = stack(x)
        for left, right in ((3, 0), (0, 4)):
            keep = torch.zeros(BATCH_SIZE, LENGTH + left + right, dtype=torch.bool)
            keep[:, left : left + LENGTH] = True
            padded = nn.functional.pad(x, (0, 0, left, right), value=5.0)
            out = stack(padded, Layout(keep))[:, left : left + LENGTH]
            outcomes.append(compare(out, alone, f"{left} padding tokens before the text and {right} after it"))
    return join(outcomes, "padding on either side changes nothing")


def check_position_order(entry: PositionEntry) -> Outcome:
    """The order of the tokens changes the output."""
    stack, x, order = make_position_stack(entry, FULL), make_vectors(), torch.randperm(LENGTH)
    is_same = torch.allclose(stack(x[:, order]), stack(x)[:, order], rtol=TOLERANCE, atol=TOLERANCE)
    return Outcome(
        "fails" if is_same else "holds", f"the order of the tokens {'changes nothing' if is_same else 'matters'}"
    )


POSITION_REQUIREMENTS = [
    Requirement(
        "incremental", check_position_steps, "Decoding sees one token at a time.", "positions taken from a shape."
    ),
    Requirement(
        "padding", check_position_padding, "Batches are padded.", "positions that count padding; -1 is not clamped."
    ),
    Requirement(
        "order",
        check_position_order,
        "Attention alone ignores the order.",
        "`add_to_input`, `rotate` or `bias` is not overridden.",
    ),
]


# a family
@dataclass(frozen=True)
class FamilySubject:
    """A family under test, with small sizes."""

    family: Family

    @property
    def config(self) -> Any:
        """The default config with small sizes."""
        known = {item.name for item in fields(self.family.config_class)}
        return self.family.config_class(**{name: size for name, size in SMALL_SIZES.items() if name in known})

    @property
    def reads_text(self) -> bool:
        return self.family.capabilities(self.config).input is Modality.TEXT

    def build(self, head: str | None = None) -> Model:
        model = new(self.family, self.config, head=head, labels=3).double().eval()
        for parameter in model.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=WEIGHT_STD)
        return model


def make_texts() -> Batch:
    return Batch(Text(torch.randint(3, VOCAB, (2, 7))), Text(torch.randint(3, VOCAB, (2, 6))))


def compute_output(model: Model, batch: Batch) -> Tensor:
    return teacher_forced_logits(model, batch) if model.capabilities.is_autoregressive else model(batch)


def check_family_files(subject: FamilySubject) -> Outcome:
    """A model of each head is saved and loaded with the same config and weights."""
    for head in (None, *subject.family.heads):
        model = subject.build(head).float()
        with TemporaryDirectory() as directory:
            model.save(Path(directory) / "model")
            loaded = load(Path(directory) / "model")
        weights = loaded.state_dict()
        different = [name for name, x in model.state_dict().items() if not torch.equal(weights[name], x)]
        if different or loaded.config != model.config:
            return Outcome(
                "fails", f"head {head or 'none'}: loaded differently: {', '.join(different) or 'the config'}"
            )
    return Outcome("holds", f"saved and loaded without a head and with {', '.join(subject.family.heads) or 'no other'}")


def check_family_capabilities(subject: FamilySubject) -> Outcome:
    """The body has what the capabilities declare: the paths of its layers, and `start` and `step` if it generates."""
    capabilities, body = subject.family.capabilities(subject.config), subject.build().body
    paths = {name for name, _ in body.named_modules()}
    missing = [path for path in capabilities.layers if path not in paths]
    methods = ("start", "step", "hidden_states", "head") if capabilities.is_autoregressive else ("forward", "width")
    missing += [name for name in methods if not hasattr(body, name)]
    if missing:
        return Outcome("fails", f"the body has no {', '.join(missing)}, which its capabilities declare")
    return Outcome("holds", f"it {capabilities.describe()}, as declared")


def check_family_padding(subject: FamilySubject) -> Outcome:
    """A text in a padded batch has the output that it has alone."""
    if not subject.reads_text:
        return Outcome("not applicable", "it does not read texts")
    model, batch, outcomes = subject.build(), make_texts(), []
    assert isinstance(batch.target, Text)
    rows = [torch.randint(3, VOCAB, (size,)).tolist() for size in (7, 4)]
    for left in (True, False):
        text = Text.pad(rows, pad_left=left)
        together = compute_output(model, Batch(text, batch.target))
        for i, row in enumerate(rows):
            target = Text(batch.target.tokens[i : i + 1])
            alone = compute_output(model, Batch(Text(torch.tensor([row])), target))[0]
            mine = (
                together[i] if model.capabilities.is_autoregressive or text.keep is None else together[i][text.keep[i]]
            )
            outcomes.append(compare(mine, alone, f"padding on the {'left' if left else 'right'}"))
    return join(outcomes, "padding on either side changes nothing")


def check_family_steps(subject: FamilySubject) -> Outcome:
    """Decoding token by token equals all at once."""
    model, batch = subject.build(), make_texts()
    if not (subject.reads_text and model.capabilities.is_autoregressive):
        return Outcome("not applicable", "it does not generate from a text")
    assert isinstance(batch.target, Text)
    tokens, (state, first) = batch.target.tokens, model.start(batch)
    parts = [model.step(first, state)[:, -1:]]
    parts += [model.step(Text(tokens[:, a:b]), state) for a, b in ((0, 1), (1, 4), (4, 5))]
    return compare(torch.cat(parts, dim=1), compute_output(model, batch), "steps of 1, 3 and 1 tokens")


def check_family_gradients(subject: FamilySubject) -> Outcome:
    """Every parameter gets a finite gradient."""
    if not subject.reads_text:
        return Outcome("not applicable", "it does not read texts")
    model = subject.build().train()
    compute_output(model, make_texts()).sin().sum().backward()
    # the bias of a key moves all scores of a query alike, so softmax gives it no gradient
    named = {name: p.grad for name, p in model.named_parameters() if not name.endswith("key.bias")}
    bad = [name for name, grad in named.items() if grad is None or not grad.isfinite().all()]
    if bad:
        return Outcome("fails", f"no finite gradient reaches {', '.join(bad[:5])}")
    return Outcome("holds", "finite for all parameters")


FAMILY_REQUIREMENTS = [
    Requirement(
        "files",
        check_family_files,
        "A run is stored and opened again.",
        "a parameter that the config does not determine.",
    ),
    Requirement(
        "capabilities", check_family_capabilities, "Tasks and tools read them, and never the body.", "a renamed module."
    ),
    Requirement("padding", check_family_padding, "Batches are padded.", "a layout that is not handed to the stack."),
    Requirement(
        "incremental", check_family_steps, "Decoding sees one token at a time.", "a state that is not updated."
    ),
    Requirement(
        "gradients", check_family_gradients, "What is trained has to be reached.", "an unused parameter, or detach."
    ),
]


# a task
@dataclass(frozen=True)
class TaskSubject:
    """A task under test: a small model of its default family, and the first examples of its sample."""

    task_class: type[Task]

    @cached_property
    def prepared_run(self) -> PreparedRun:
        """The task fitted to its sample, and a new model."""
        task = self.task_class()
        task.roles(())
        config_class = find_family(task.default_family(), task).config_class
        known = {item.name for item in fields(config_class)}
        return prepare(Job(task.name, model_fields={k: v for k, v in TASK_SIZES.items() if k in known}))

    def prepare(self) -> PreparedRun:
        """The same with a copy of the model, which may be trained."""
        return replace(self.prepared_run, model=deepcopy(self.prepared_run.model))

    def first_examples(self, prepared: PreparedRun) -> list[Example]:
        return list(prepared.splits.train.examples[:TRAINING_EXAMPLES])


def check_task_sample(subject: TaskSubject) -> Outcome:
    """The sample fills the roles, so that the task runs without a file."""
    task = subject.task_class()
    names = [role.name for role in task.roles(()) if role.required]
    examples = get_sample(task.sample).make(TRAINING_EXAMPLES, 0)
    missing = [name for name in names if name not in examples[0]]
    if missing:
        return Outcome(
            "fails", f"the sample {task.sample} has no {', '.join(missing)}; it has {', '.join(examples[0].values)}"
        )
    return Outcome("holds", f"the sample {task.sample} fills {', '.join(names)}")


def check_task_loss(subject: TaskSubject) -> Outcome:
    """The loss and the count of targets of a batch are the sums over its rows."""
    prepared = subject.prepare()
    task, model = prepared.task, prepared.model.eval()
    items = task.encode(subject.first_examples(prepared), model)
    if task.needs_unsplit_batch or not items:
        return Outcome("not applicable", "its batches cannot be split")
    batch, rows = task.batch(items), [task.batch([item]) for item in items]
    if (total := task.count_targets(batch)) != (by_row := sum(task.count_targets(row) for row in rows)):
        return Outcome("fails", f"count_targets is {total} for a batch, and {by_row} for its rows")
    with torch.no_grad():
        together, alone = task.loss(model, batch).double(), sum(task.loss(model, row).double() for row in rows)
    return compare(together, torch.as_tensor(alone), "the loss of a batch is the sum over its rows", tolerance=1e-4)


def check_task_learning(subject: TaskSubject) -> Outcome:
    """Training on a few examples lowers their loss."""
    prepared = subject.prepare()
    task, model = prepared.task, prepared.model.train()
    batch = task.batch(task.encode(subject.first_examples(prepared), model))
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=3e-3), []
    for _ in range(TRAINING_STEPS):
        optimizer.zero_grad()
        loss = task.loss(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    message = f"the loss of {TRAINING_EXAMPLES} examples went from {losses[0]:.3g} to {losses[-1]:.3g} in {TRAINING_STEPS} steps"
    return Outcome("holds" if losses[-1] < LOSS_DROP * losses[0] else "fails", message)


def check_task_answers(subject: TaskSubject) -> Outcome:
    """Inputs without gold are answered, and a prediction is a JSON-serializable record."""
    prepared = subject.prepare()
    task, examples = prepared.task, subject.first_examples(prepared)
    bare = [Example({k: v for k, v in e.values.items() if k not in task.gold_roles}) for e in examples]
    answers, answered = predict(task, prepared.model, bare)
    for answer, example in zip(answers, answered, strict=True):
        json.dumps(task.to_prediction(answer, example).as_dict())
    return Outcome("holds", f"{len(answers)} answers without gold, all of them JSON")


def check_task_scores(subject: TaskSubject) -> Outcome:
    """`score` returns scores, of which the first selects the best checkpoint."""
    prepared = subject.prepare()
    scores = evaluate(prepared.task, prepared.model, subject.first_examples(prepared))
    if not scores or not all(isinstance(score, Score) for score in scores):
        return Outcome("fails", f"score returned {scores!r}; a list of saccade.metrics.Score is needed")
    return Outcome("holds", ", ".join(score.name for score in scores))


TASK_REQUIREMENTS = [
    Requirement("sample", check_task_sample, "A task runs without a file.", "`sample` names another task's sample."),
    Requirement(
        "loss", check_task_loss, "The training loop divides a sum by `count_targets`.", "a mean instead of a sum."
    ),
    Requirement(
        "learning", check_task_learning, "What is trained has to learn.", "a loss without the model, or a wrong gold."
    ),
    Requirement("answers", check_task_answers, "Prediction has no gold.", "`encode` or `answer` reads a gold role."),
    Requirement(
        "scores", check_task_scores, "The first score selects the checkpoint.", "plain numbers instead of `Score`."
    ),
]


def check_position(entry: PositionEntry) -> CheckReport:
    """Test the contract of a position scheme."""
    return check_contract(f"the position scheme {entry.name}", entry, POSITION_REQUIREMENTS)


def check_family(family: Family) -> CheckReport:
    """Test the contract of a family of models, at small sizes."""
    return check_contract(f"the family {family.name}", FamilySubject(family), FAMILY_REQUIREMENTS)


def check_task(task_class: type[Task]) -> CheckReport:
    """Test the contract of a task on its sample, with a small model."""
    return check_contract(f"the task {task_class.name}", TaskSubject(task_class), TASK_REQUIREMENTS)
