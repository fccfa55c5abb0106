"""Gender detection on WinoMT (Stanovsky et al. 2019): stored translations of three systems, and the accuracies of the paper.

Our rule differs from that of the paper. In French the accuracy is within 2.5 points of table 2. In German it is 3 to 5 points
lower, because the published rule takes the nearest word of a list in which "den" is missing and pronouns are not, so that "den
Friseur an, weil sie ..." counts as a woman; it counts a person that is not found as a man, and "die Wache" as a woman. The same
rule, applied to the nouns that we find, reproduces the paper's accuracies within two points.
"""

import os
from pathlib import Path

import pytest

from saccade.audit.suites.gender.lexicon import load_lexicon, split_words_with_offsets
from saccade.audit.suites.gender.locate import GenderReading, read_genders
from saccade.audit.suites.gender.measure import estimate_gender_bias
from saccade.audit.suites.gender.sentences import read_winomt

pytestmark = pytest.mark.nightly

DATA = Path(os.environ.get("SACCADE_DATA", "")) / "bias_winomt"
SYSTEMS = ("google", "bing", "aws")
PAPER = {"de": (59.4, 74.1, 62.4), "fr": (63.6, 44.7, 55.2)}
HIS = ["der", "ein", "dem", "einen", "des", "er", "seiner", "ihn", "seinen", "ihm", "ihren", "seinem", "ihrem", "sein"]
HERS = ["die", "eine", "einer", "sie", "seine", "ihrer"]
NEUTRAL = ["ihr", "ihre", "das", "jemanden"]


@pytest.fixture(autouse=True)
def _data():
    if "SACCADE_DATA" not in os.environ or not DATA.is_dir():
        pytest.skip("SACCADE_DATA names no directory with bias_winomt")


def readings(system: str, code: str) -> list[GenderReading]:
    """The readings of all translated sentences; two sentences of the file were corrected after the translation."""
    lines = (DATA / "translations" / f"{system}.en-{code}.txt").read_text(encoding="utf-8").splitlines()
    pairs = zip(read_winomt(DATA / "en.txt"), (line.split(" ||| ") for line in lines), strict=True)
    kept = [(sentence, target) for sentence, (source, target) in pairs if source == sentence.text]
    assert len(kept) == len(lines) - 2
    return read_genders([sentence for sentence, _ in kept], [target for _, target in kept], load_lexicon(code))


def published(one: GenderReading) -> str:
    """The gender by the paper's German rule: nurses and nouns in -in are women, else the nearest word of a list decides."""
    if one.sentence.occupation == "nurse" or any(word.endswith("in") for word in one.noun.split()):
        return "female"
    words = [word for word, _ in split_words_with_offsets(one.translation)]
    if one.gender is None:
        return "male"
    at = words.index(one.noun.split()[0])
    near = [(abs(n - at), word.lower()) for n, word in enumerate(words) if word.lower() in HIS + HERS + NEUTRAL]
    word = min(near, key=lambda pair: pair[0])[1] if near else "er"
    return "male" if word in HIS else "female" if word in HERS else "neutral"


@pytest.mark.parametrize(("system", "paper"), list(zip(SYSTEMS, PAPER["fr"], strict=True)))
def test_french_is_within_three_points_of_the_paper(system, paper):
    accuracy = estimate_gender_bias(readings(system, "fr"))[0]
    assert 100 * accuracy.value == pytest.approx(paper, abs=3)


@pytest.mark.parametrize(("system", "paper"), list(zip(SYSTEMS, PAPER["de"], strict=True)))
def test_german_is_the_papers_with_the_papers_rule_and_lower_without_it(system, paper):
    found = readings(system, "de")
    theirs = sum(published(one) == one.sentence.gender for one in found) / len(found)
    assert 100 * theirs == pytest.approx(paper, abs=2)
    accuracy = estimate_gender_bias(found)[0]
    assert 0 < paper - 100 * accuracy.value < 5.5


@pytest.mark.parametrize("code", PAPER)
@pytest.mark.parametrize("system", SYSTEMS)
def test_few_people_are_not_found_and_the_alignment_agrees_with_the_lexicon(system, code):
    named = {one.name: one.value for one in estimate_gender_bias(readings(system, code))}
    assert named["person not found"] < 0.03
    assert named["alignment error on lexicon nouns"] < 0.01


@pytest.mark.parametrize("side", ["pro", "anti"])
def test_the_table_of_percentages_gives_the_sides_of_winomt(side):
    assert {one.side for one in read_winomt(DATA / f"en_{side}.txt")} == {side}
