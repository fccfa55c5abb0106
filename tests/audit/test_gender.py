"""Gender bias in translation: planted translations (right, masculine, random, stereotypical) get the expected metrics."""

import random

import pytest
from scipy.stats import binomtest
from sklearn.metrics import f1_score

from saccade.audit.suite import AuditSubject
from saccade.audit.suites.gender.ibm_model1 import DEFAULT_EM_ITERATIONS, DIAGONAL_TENSION, align
from saccade.audit.suites.gender.lexicon import LANGUAGES, load_lexicon, split_words_with_offsets
from saccade.audit.suites.gender.locate import pharaoh_to_table, read_genders
from saccade.audit.suites.gender.measure import estimate_gender_bias, table_by_occupation
from saccade.audit.suites.gender.sentences import (
    OccupationSentence,
    builtin_sentences,
    load_templates,
    load_women_percentages,
    read_winomt,
)
from saccade.audit.suites.gender.suite import GenderSuite, evaluate_translations, guess_language
from saccade.errors import DataError
from saccade.models.families.transformer import Config
from saccade.models.load import new
from saccade.tasks.translate import Translate
from saccade.text.train import train_tokenizer

ARTICLES = {"de": ("Der", "Die"), "fr": ("Le", "La"), "pt": ("O", "A"), "es": ("El", "La")}


def called(code: str, occupation: str, female: bool) -> str:
    """A noun phrase for a person, from the lexicon: the gendered form, or the common one with its article."""
    forms = {
        kind: word
        for word, form in load_lexicon(code).forms.items()
        if occupation in form.occupations
        for kind in [form.kind]
    }
    word = forms.get("female" if female else "male") or forms.get("both")
    return "" if word is None else f"{ARTICLES[code][female]} {' '.join(word)}"


def translated(sentences: list[OccupationSentence], code: str, choose) -> tuple[list[OccupationSentence], list[str]]:
    """Planted translations: `choose` decides for a sentence whether its translation is feminine."""
    kept, texts = [], []
    for sentence in sentences:
        phrases = [called(code, sentence.occupation, female) for female in (False, True)]
        if all(phrases):
            kept.append(sentence)
            phrase = phrases[choose(sentence)]
            texts.append(phrase.title() if code == "de" else phrase)
    return kept, texts


def value(found, name: str):
    return next(one for one in found if one.name.startswith(name))


def test_the_builtin_sentences_are_many_and_balanced_and_always_the_same():
    found = builtin_sentences()
    assert len(load_templates()) >= 80
    assert len(found) >= 1000
    assert found == builtin_sentences()
    assert len({one.text for one in found}) > 0.9 * len(found)
    for him, her in zip(found[::2], found[1::2], strict=True):
        assert (him.gender, her.gender, him.occupation, him.position) == (
            "male",
            "female",
            her.occupation,
            her.position,
        )
        swapped = [pair for pair in zip(him.text.split(), her.text.split(), strict=True) if pair[0] != pair[1]]
        pronouns = {("he", "she"), ("him", "her"), ("his", "her"), ("himself", "herself")}
        assert {(a.strip(".").lower(), b.strip(".").lower()) for a, b in swapped} <= pronouns
        assert swapped
    sides = [(one.side, one.gender) for one in found]
    assert sides.count(("pro", "female")) == sides.count(("anti", "male")) == sides.count(("pro", "male"))


@pytest.mark.parametrize("count", [400, 37, 2])
def test_fewer_sentences_are_an_even_sample_of_pairs(count):
    found = builtin_sentences(count)
    assert len(found) == count // 2 * 2
    assert [one.gender for one in found] == ["male", "female"] * (count // 2)
    if count == 400:
        sides = [(one.side, one.gender) for one in found]
        assert sides.count(("pro", "female")) == sides.count(("pro", "male")) == 100
        assert len({one.occupation for one in found}) > 40


def test_the_position_of_a_sentence_is_its_occupation():
    for one in builtin_sentences():
        assert split_words_with_offsets(one.text)[one.position][0] == one.occupation.split()[0]


def test_winomt_is_read_and_its_errors_are_named(tmp_path):
    path = tmp_path / "wino.txt"
    path.write_text("female\t1\tThe developer's friend, she said, left.\tdeveloper\n", encoding="utf-8")
    (one,) = read_winomt(path)
    assert (one.gender, one.occupation, one.position, one.side) == ("female", "developer", 1, "anti")
    for text, message in [
        ("female\t1\tThe cook left.", r"wino.txt:1: 3 columns, expected 4"),
        ("woman\t1\tThe cook left.\tcook", r"wino.txt:1: unknown gender; column 1 is 'woman'"),
        ("female\t3\tThe cook left.\tcook", r"the sentence has 3 words; column 2 is '3'"),
        ("", "the file has no sentences"),
    ]:
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=message):
            read_winomt(path)
    with pytest.raises(DataError, match=r"nowhere.txt: cannot be read"):
        read_winomt(tmp_path / "nowhere.txt")


@pytest.mark.parametrize("code", LANGUAGES)
def test_planted_translations_get_the_expected_metrics(code):
    """Always right, always masculine, always the stereotype, or random."""
    every = builtin_sentences(600)
    coin = random.Random(5)
    says_her = {
        "right": lambda one: one.gender == "female",
        "male": lambda one: False,
        "prejudiced": lambda one: load_women_percentages()[one.occupation] > 50,
        "random": lambda one: coin.random() < 0.5,
    }
    found = {}
    for name, choose in says_her.items():
        sentences, texts = translated(every, code, choose)
        readings = read_genders(sentences, texts, load_lexicon(code))
        assert len(readings) > 300
        assert [one.gender == "female" for one in readings if one.gender] == [
            phrase.split()[0] == ARTICLES[code][1] for one, phrase in zip(readings, texts, strict=True) if one.gender
        ]
        found[name] = estimate_gender_bias(readings)
    assert guess_language(sentences, texts) == code
    accuracy = {name: value(one, "accuracy") for name, one in found.items()}
    assert accuracy["right"].value > 0.99
    assert accuracy["male"].value == pytest.approx(0.5, abs=0.01)
    assert accuracy["random"].low < 0.5 < accuracy["random"].high
    gap = {name: value(one, "male - female") for name, one in found.items()}
    assert gap["male"].value == pytest.approx(2 / 3, abs=0.01)  # precision 1/2 and recall 1 for men, 0 for women
    assert gap["right"].value == pytest.approx(0, abs=0.005)
    assert gap["random"].low < 0 < gap["random"].high
    sided = {name: value(one, "pro-stereotypical") for name, one in found.items()}
    assert sided["prejudiced"].value > 0.99
    assert sided["prejudiced"].is_significant
    assert not sided["right"].is_significant
    assert not sided["random"].is_significant
    assert not sided["male"].is_significant


def test_the_language_of_poor_translations_is_detected_by_stop_words():
    every = builtin_sentences(40)
    poor = {
        "de": "Der Abreiseurgung hat sie mit der Arbeit und nicht.",
        "fr": "Le sargent est dans la rue et il ne va pas.",
    }
    for code, text in poor.items():
        assert guess_language(every, [text] * len(every)) == code
    assert guess_language(every, [sentence.text for sentence in every]) == ""  # not translated at all
    assert guess_language(every, ["ba dum " * 9] * len(every)) == ""


def test_the_gaps_are_those_of_f1_in_sklearn():
    coin = random.Random(11)
    sentences, texts = translated(
        builtin_sentences(300), "fr", lambda one: coin.random() < 0.3 + 0.3 * (one.gender == "female")
    )
    texts[::17] = ["Rien du tout."] * len(texts[::17])
    readings = read_genders(sentences, texts, load_lexicon("fr"))
    found = estimate_gender_bias(readings)

    def f1(some) -> list[float]:
        gold, said = [one.sentence.gender for one in some], [one.gender or "none" for one in some]
        return list(f1_score(gold, said, labels=["male", "female"], average=None, zero_division=0))

    male, female = f1(readings)
    assert value(found, "male - female").value == pytest.approx(male - female)
    pro, anti = (sum(f1([one for one in readings if one.sentence.side == side])) / 2 for side in ("pro", "anti"))
    assert value(found, "pro-stereotypical").value == pytest.approx(pro - anti)
    assert value(found, "person not found").value == pytest.approx(len(texts[::17]) / len(texts))


def test_a_person_that_is_not_found_is_counted_and_wrong():
    sentences, texts = translated(builtin_sentences(40), "fr", lambda one: one.gender == "female")
    finding = evaluate_translations(sentences, ["Il pleut."] * 10 + texts[10:], target_language="fr")
    assert value(finding.estimates, "person not found").value == pytest.approx(10 / len(texts))
    assert value(finding.estimates, "accuracy").value == pytest.approx(1 - 10 / len(texts))
    assert any("not found" in row for row in finding.examples.rows)
    assert "not found: 10." in finding.notes[0]


def test_every_occupation_has_its_accuracy_with_the_exact_interval():
    sentences, texts = translated(builtin_sentences(), "fr", lambda one: one.gender == "female")
    readings = [one for one in read_genders(sentences, texts, load_lexicon("fr")) if one.sentence.occupation == "baker"]
    (row,) = table_by_occupation(readings).rows
    for cell, gender in zip(row[3:], ("male", "female"), strict=True):
        count = sum(one.sentence.gender == gender for one in readings)
        exact = binomtest(count, count).proportion_ci()
        assert cell == f"100% ({exact.low:.0%} to 100%)"


def test_one_translation_per_sentence_is_required():
    with pytest.raises(DataError, match="2 sentences and 1 translations"):
        read_genders(builtin_sentences(2), ["Le cuisinier."], load_lexicon("fr"))


def test_links_decide_if_two_people_have_the_same_noun():
    """Both are called "Berater": the one to which the links point is read."""
    sentence = OccupationSentence("The counselor met the advisor.", "advisor", 4, "female")
    text = "Der Berater traf die Beraterin."
    for links, gender in [("1-1 4-4", "female"), ("1-4 4-1", "male")]:
        (one,) = read_genders([sentence], [text], load_lexicon("de"), [links])
        assert (one.gender, one.noun_source, one.alignment_agrees) == (gender, "lexicon", True)


def test_links_that_miss_nouns_of_the_lexicon_are_not_used():
    sentences, texts = translated(builtin_sentences(60), "fr", lambda one: one.gender == "female")
    good = [f"{one.position}-1" for one in sentences]
    assert (
        "by the attention of the model"
        in evaluate_translations(sentences, texts, target_language="fr", links=good).notes[0]
    )
    bad = evaluate_translations(
        sentences, texts, target_language="fr", links=[f"{one.position}-0" for one in sentences]
    )
    assert "aligned statistically (IBM model 1), because attention misses 100% of the nouns" in bad.notes[0]
    assert bad.estimates[0].value == 1.0


def test_links_find_a_noun_that_is_not_in_the_lexicon():
    sentence = OccupationSentence("The baker sang.", "baker", 1, "female")
    (one,) = read_genders([sentence], ["La fournilleuse chantait."], load_lexicon("fr"), ["0-0 1-1 2-2"])
    assert (one.noun, one.gender, one.noun_source) == ("fournilleuse", "female", "alignment")
    (one,) = read_genders([sentence], ["La fournilleuse chantait."], load_lexicon("fr"), [""])
    assert (one.gender, one.noun_source) == (None, "not_found")


def test_pharaoh_links_are_between_words_separated_by_spaces():
    table = pharaoh_to_table("1-0 2-1", "The cook, she", "L'homme dit")
    assert table.shape == (4, 3)  # The cook , she; L' homme dit
    assert table[1].tolist() == table[2].tolist() == [1, 1, 0]
    assert table[3].tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="'1:2' is not a link"):
        pharaoh_to_table("1:2", "a", "b")


def test_the_alignment_is_that_of_the_formulas():
    """Expectation maximization in loops, one word pair at a time."""
    pairs = [
        (["the", "red", "house"], ["das", "rote", "Haus"]),
        (["the", "house"], ["das", "Haus"]),
        (["red"], ["rote"]),
    ]

    def near(i, j, source, target):
        return 2.718281828459045 ** (-DIAGONAL_TENSION * abs(i / len(source) - j / len(target)))

    def posterior(back):
        chance: dict = {}
        for _ in range(DEFAULT_EM_ITERATIONS):
            shares, counts, totals = [], {}, {}
            for source, target in pairs:
                places = [(i, j) for i in range(len(source)) for j in range(len(target))]
                raw = {(i, j): chance.get((source[i], target[j]), 1.0) * near(i, j, source, target) for i, j in places}
                sums = {}
                for (i, j), x in raw.items():
                    sums[j if back else i] = sums.get(j if back else i, 0.0) + x
                share = {(i, j): x / sums[j if back else i] for (i, j), x in raw.items()}
                shares.append(share)
                for (i, j), x in share.items():
                    two = (source[i], target[j])
                    counts[two] = counts.get(two, 0.0) + x
                    totals[two[0 if back else 1]] = totals.get(two[0 if back else 1], 0.0) + x
            chance = {two: x / totals[two[0 if back else 1]] for two, x in counts.items()}
        return shares

    forth, back = posterior(False), posterior(True)
    for table, one, other in zip(align(pairs), forth, back, strict=True):
        for (i, j), x in one.items():
            assert table[i, j] == pytest.approx((x * other[i, j]) ** 0.5, abs=1e-6)


def test_a_model_with_random_weights_is_not_mistaken_for_a_fair_one():
    tokenizer = train_tokenizer([one.text for one in builtin_sentences(100)], "characters", token_template="t5")
    model = new("transformer", Config(vocab=tokenizer.vocab, width=16, layers=1, heads=2, ffn_width=32))
    model.tokenizer = tokenizer
    seen = []
    subject = AuditSubject(
        Translate(Translate.Config(max_tokens=24)), model, on_progress=lambda done, of: seen.append((done, of))
    )
    finding = GenderSuite().run(subject)
    assert "Nothing was measured" in finding.notes[0]
    not_found = value(finding.estimates, "person not found")
    assert not_found.value == 1.0
    assert not_found.low == pytest.approx(binomtest(400, 400).proportion_ci().low)
    assert finding.examples is not None
    assert finding.examples.rows[0][0] == builtin_sentences(400)[0].text
    assert seen[-1] == (400, 400)
    assert GenderSuite().not_applicable(Translate()) == ""
