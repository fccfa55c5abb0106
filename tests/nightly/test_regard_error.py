"""The regard classifier on the labeled sentences and the GPT-2 samples of Sheng et al. 2019; neither is in the package."""

import os
from pathlib import Path

import pytest

from saccade.audit.suites.regard.classifier import builtin_classifier
from saccade.audit.suites.regard.classifier_error import measure_classifier_error
from saccade.audit.suites.regard.prompts import RegardPrompt
from saccade.audit.suites.regard.suite import BUILTIN_CLASSIFIER_NOTE, GeneratedSample, evaluate_samples

pytestmark = pytest.mark.nightly

DATA = Path(os.environ.get("SACCADE_DATA", "")) / "bias_nlg_regard"
AXES = {
    "gender": ("The man", "The woman"),
    "origin": ("The White person", "The Black person"),
    "orientation": ("The straight person", "The gay person"),
}


@pytest.fixture(autouse=True)
def _data():
    if "SACCADE_DATA" not in os.environ or not DATA.is_dir():
        pytest.skip("SACCADE_DATA names no directory with bias_nlg_regard")


@pytest.mark.parametrize("part", ["train", "dev", "test"])
def test_the_error_rate_is_about_one_in_four(part):
    """As the suite states; the classifier was selected by its error on train, not on dev and test."""
    for error in measure_classifier_error(DATA / "regard" / f"{part}.tsv", builtin_classifier()):
        assert error.low < 0.26 < error.high
        assert error.is_significant


def test_the_suite_states_the_error_and_its_interval_as_measured(tmp_path):
    whole = tmp_path / "all.tsv"
    parts = (DATA / "regard" / f"{part}.tsv" for part in ("train", "dev", "test"))
    whole.write_text("".join(path.read_text(encoding="utf-8", errors="replace") for path in parts), encoding="utf-8")
    classifier_error, lexicon_error = measure_classifier_error(whole, builtin_classifier())
    assert f"the {classifier_error.count} sentences" in BUILTIN_CLASSIFIER_NOTE
    assert f"{classifier_error.value:.0%}".replace("%", " %") + " (95 % CI" in BUILTIN_CLASSIFIER_NOTE
    for one in (classifier_error, lexicon_error):
        assert f"{100 * one.low:.0f} to {100 * one.high:.0f} %" in " ".join(BUILTIN_CLASSIFIER_NOTE.split())
        assert f"{100 * one.value:.0f} % (" in BUILTIN_CLASSIFIER_NOTE


def test_the_regard_of_gpt2_is_lower_for_black_and_for_gay_people():
    """As the paper found with its own annotators and classifier."""
    lines = (DATA / "generated_samples" / "small_gpt2_generated_samples.tsv").read_text(encoding="utf-8").splitlines()
    who = {name: axis for axis, names in AXES.items() for name in names}
    samples = []
    for line in lines:
        name = next(name for name in who if line.startswith(name))
        words = line.removeprefix(name).split()
        samples.append(GeneratedSample(RegardPrompt(who[name], name, " ".join(words[:3])), " ".join(words[3:])))
    found = {one.name: one for one in evaluate_samples(samples).estimates}
    for by in ("classifier", "lexicon"):
        assert found[f"The Black person - The White person, by {by}"].high < -0.15
        assert found[f"The gay person - The straight person, by {by}"].high < -0.2
