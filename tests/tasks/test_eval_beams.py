"""Held-out texts searched with beams when they are scored: what is scored is what a search finds, row by row."""

import json

import pytest
import torch

from saccade.cli import main
from saccade.data import Batch, Text
from saccade.decoding import BeamConfig, StoppingCriteria, beam_search
from saccade.tasks.predict import predict
from saccade.tasks.summarize import Summarize
from saccade.tasks.translate import Translate
from saccade.training.prepare import Job, prepare

SMALL = {"width": 16, "layers": 1, "ffn_width": 16, "heads": 2}


def test_the_answers_of_beams_are_those_of_a_search_of_each_text_alone():
    ready = prepare(
        Job(
            "translate",
            (),
            "transformer",
            model_fields=SMALL,
            task_fields={"tokenizer": "characters", "max_tokens": 24},
        )
    )
    model, examples = ready.model.eval(), ready.splits.dev.examples[:7]
    torch.manual_seed(1)
    for weight in model.parameters():
        weight.data += 0.5 * torch.randn_like(weight)  # so that it does not say the same for ever
    greedy = predict(ready.task, model, examples)[0]
    task = Translate(Translate.Config(max_tokens=24, eval_beams=4))
    found = predict(task, model, examples)[0]
    tokenizer, wanted = model.tokenizer, []
    for item in task.encode(examples, model):
        alone = Batch(Text.pad([item.source.tolist()]))
        best = beam_search(
            model, alone, StoppingCriteria(tokenizer.target.eos_id, task.max_target_tokens()), BeamConfig(4)
        )[0][0]
        wanted.append(tokenizer.target.decode(best.tokens))
    assert found == wanted
    assert found != greedy


@pytest.mark.parametrize("kind", [Translate, Summarize])
def test_beams_are_one_or_more(kind):
    assert kind.Config().eval_beams == 1
    with pytest.raises(ValueError, match=r"task\.eval_beams is 0; it must be at least 1"):
        kind.Config(eval_beams=0)


def test_a_run_is_scored_with_other_beams_than_it_was_trained_with(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "get", "dates", "dates.tsv", "--count", "60"]) == 0
    sizes = [f"--model.{name}={value}" for name, value in SMALL.items()]
    assert main(["train", "translate", "--data", "dates.tsv", "--out", "run", "--train.max-steps", "2", *sizes]) == 0
    capsys.readouterr()
    assert main(["evaluate", "run", "--data", "dates.tsv", "--set", "eval_beams=3", "--json"]) == 0
    assert "bleu" in json.dumps(json.loads(capsys.readouterr().out))
    assert main(["evaluate", "run", "--data", "dates.tsv", "--set", "eval_beams=0"]) == 2
    assert "task.eval_beams is 0" in capsys.readouterr().err
