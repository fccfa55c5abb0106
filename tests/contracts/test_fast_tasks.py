"""Over TASKS: a fast model is asked, answers and is scored as the plain one, whatever it was made for."""

import pytest
import torch
from test_tasks import NAMES, eight, ready

from saccade.data.samples import get_sample
from saccade.engine import fast
from saccade.tasks.predict import evaluate
from saccade.tasks.pretrain.config import Config
from saccade.tasks.pretrain.task import OBJECTIVES, Pretrain
from saccade.training import prepare
from saccade.training.prepare import Job

SMALL = {"width": 32, "layers": 1, "heads": 2, "ffn_width": 64, "dropout": 0.0}


def alike(task, plain, examples):
    wanted, found = (
        {score.name: score.value for score in evaluate(task, model, examples)}
        for model in (plain, fast(plain, "float32"))
    )
    assert wanted
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_the_plain_models(name):
    examples = eight(name)
    made = ready(name, examples)
    alike(made.task, made.model.eval(), examples)


@pytest.mark.parametrize("name", [objective.name for objective in OBJECTIVES])
def test_scores_of_a_body_are_the_plain_models(name):
    task = Pretrain(Config(objective=name))
    examples = get_sample(task.sample).make(8, 3)
    torch.manual_seed(0)
    given = Job("pretrain", model_fields=SMALL)
    model = prepare._build_model(given, task, task.defaults(examples, False), list(examples))
    alike(task, model.eval(), examples)
