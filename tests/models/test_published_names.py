"""Names of published weights: short names, and what is said to the name of a family."""

import pytest

import saccade
from saccade.models import published_names
from saccade.models.registry import FAMILIES


def test_every_name_of_a_family_with_published_weights_is_one():
    assert set(published_names.PUBLISHED_WEIGHTS) <= {family.name for family in FAMILIES}
    assert all(family.weight_map for family in FAMILIES if family.name in published_names.PUBLISHED_WEIGHTS)
    assert not set(published_names.SHORT_NAMES) & {n for f in FAMILIES for n in (f.name, *f.short_names)}


@pytest.mark.parametrize("name", ["gpt2", "transformer"])
def test_the_name_of_a_family_is_answered_with_what_to_do(name):
    for call in (saccade.load, lambda name: saccade.train("label", model=name)):
        with pytest.raises(saccade.UsageError, match=f"--family {name}"):
            call(name)
    with pytest.raises(saccade.UsageError, match="Pass one of them"):
        saccade.train("label", model="gpt2", family="bert")


def test_a_directory_with_the_name_of_a_family_is_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saccade.new("gpt2", width=8, layers=1, heads=2, vocab=300).save("bert")
    assert saccade.load("bert").family.name == "gpt2"


def test_a_short_name_is_that_of_a_repository(monkeypatch):
    fetched = []

    def fetch(name, files):
        fetched.append(name)
        raise saccade.ModelError("not here.")

    monkeypatch.setattr("saccade.models.io.hub.fetch", fetch)
    with pytest.raises(saccade.ModelError, match=r"^not here\.$"):
        saccade.load("minilm")
    with pytest.raises(saccade.ModelError, match=r"not here\. .*--family: did you mean 'bert'\?"):
        saccade.load("bret")
    assert fetched == ["sentence-transformers/all-MiniLM-L6-v2", "bret"]
