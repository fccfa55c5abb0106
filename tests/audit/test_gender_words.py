"""Gender detection on sentences written by hand in each language, and the consistency of the word files."""

import pytest

from saccade.audit.suites.gender.lexicon import LANGUAGES, expand_entry, load_lexicon, read_word_file
from saccade.audit.suites.gender.locate import read_genders
from saccade.audit.suites.gender.sentences import OccupationSentence, load_women_percentages

CASES = {
    "de": [
        ("baker", "Der Bäcker lacht.", "male"),
        ("baker", "Wir danken der Bäckerin.", "female"),
        ("physician", "Die Mutter rief die Ärztin an.", "female"),
        ("physician", "Das Haus des Arztes ist groß.", "male"),
        ("clerk", "Der Angestellte ging nach Hause.", "male"),
        ("clerk", "Die Angestellte ging nach Hause.", "female"),
        ("clerk", "Sie sprach mit der Angestellten.", "female"),
        ("clerk", "Sie sprach mit dem Angestellten.", "male"),
        ("clerk", "Ein Angestellter kam herein.", "male"),
        ("clerk", "Er half einer Angestellten.", "female"),
        ("supervisor", "Ihre Vorgesetzte war zufrieden.", "female"),
        ("CEO", "Die CEO lachte, weil sie gewonnen hatte.", "female"),
        ("CEO", "Der CEO lachte.", "male"),
        ("CEO", "Er sprach mit der CEO über das Wetter.", "female"),
        ("CEO", "Der Lehrer gab der CEO ein Buch.", "female"),
        ("CEO", "Sie weinte, weil der CEO ging.", "male"),
        ("guard", "Die Wache schlief, weil er müde war.", "neutral"),
        ("cleaner", "Die Reinigungskraft hatte seinen Schlüssel verloren.", "neutral"),
        ("nurse", "Die Krankenschwester und er lachten.", "female"),
        ("counselor", "Er rief die Rechtsberaterin an.", "female"),
        ("carpenter", "Der Zimmermann baute ein Haus.", "male"),
    ],
    "fr": [
        ("baker", "La boulangère sourit.", "female"),
        ("baker", "Elle a parlé au boulanger.", "male"),
        ("secretary", "La nouvelle secrétaire est partie.", "female"),
        ("secretary", "Il a vu le secrétaire.", "male"),
        ("secretary", "Il a répondu à la secrétaire.", "female"),
        ("secretary", "Le bureau du secrétaire est vide.", "male"),
        ("analyst", "L'analyste est en retard.", "neutral"),
        ("analyst", "L’ancienne analyste est en retard.", "female"),
        ("analyst", "Une analyste est venue.", "female"),
        ("assistant", "Son assistante est partie.", "female"),
        ("assistant", "L'assistant est parti.", "male"),
        ("designer", "La designer a dessiné un logo.", "female"),
        ("designer", "Le designer a dessiné un logo.", "male"),
        ("cleaner", "Il a remercié la femme de ménage.", "female"),
        ("editor", "La rédactrice en chef a téléphoné.", "female"),
        ("analyst", "Son analyste est venu.", "neutral"),
        ("secretary", "Sa secrétaire est venue.", "female"),
        ("victim", "La victime a crié.", "neutral"),
    ],
    "pt": [
        ("baker", "A padeira sorriu.", "female"),
        ("baker", "Ela falou com o padeiro.", "male"),
        ("manager", "A gerente saiu.", "female"),
        ("manager", "Ele deu a chave ao gerente.", "male"),
        ("manager", "O carro da gerente é velho.", "female"),
        ("manager", "Uma excelente gerente chegou.", "female"),
        ("driver", "O motorista perdeu as chaves.", "male"),
        ("driver", "Ele agradeceu à motorista.", "female"),
        ("physician", "A médica ligou para o advogado.", "female"),
        ("lawyer", "A médica ligou para o advogado.", "male"),
        ("cleaner", "A mulher da limpeza saiu.", "female"),
        ("surgeon", "A cirurgiã operou.", "female"),
        ("victim", "A vítima gritou.", "neutral"),
        ("teacher", "A nova professora chegou.", "female"),
    ],
    "es": [
        ("baker", "La panadera sonrió.", "female"),
        ("baker", "Ella habló con el panadero.", "male"),
        ("receptionist", "La recepcionista salió.", "female"),
        ("receptionist", "Dio la llave al recepcionista.", "male"),
        ("receptionist", "El coche de la recepcionista es viejo.", "female"),
        ("receptionist", "Su recepcionista salió.", "neutral"),
        ("receptionist", "Su nueva recepcionista salió.", "female"),
        ("housekeeper", "El ama de llaves salió.", "female"),
        ("lawyer", "El médico llamó a la abogada.", "female"),
        ("physician", "El médico llamó a la abogada.", "male"),
        ("tailor", "La sastre cosió el traje.", "female"),
        ("chief", "La jefa llegó tarde.", "female"),
        ("chief", "El libro del jefe es nuevo.", "male"),
        ("victim", "La víctima gritó.", "neutral"),
    ],
}


@pytest.mark.parametrize(
    ("code", "occupation", "text", "gender"), [(code, *case) for code, cases in CASES.items() for case in cases]
)
def test_sentences_written_by_hand(code, occupation, text, gender):
    sentence = OccupationSentence(f"The {occupation} is here.", occupation, 1, "male")
    (one,) = read_genders([sentence], [text], load_lexicon(code))
    assert (one.gender, one.noun_source) == (gender, "lexicon"), one


@pytest.mark.parametrize("code", LANGUAGES)
def test_every_builtin_occupation_has_a_noun_in_every_language(code):
    assert load_women_percentages().keys() <= read_word_file(f"{code}.toml")["occupations"].keys()


@pytest.mark.parametrize("code", LANGUAGES)
def test_no_form_is_masculine_in_one_entry_and_feminine_in_another(code):
    kinds: dict[str, set[str]] = {}
    for entries in read_word_file(f"{code}.toml")["occupations"].values():
        for word, kind in (form for entry in entries for form in expand_entry(entry)):
            kinds.setdefault(word.lower(), set()).add(kind)
    assert not {word for word, found in kinds.items() if {"male", "female"} <= found}
    assert not {word for word, found in kinds.items() if "neutral" in found and len(found) > 1}


@pytest.mark.parametrize(
    ("code", "word", "kind"),
    [
        ("de", "Gärtnerin", "female"),
        ("de", "Gärtner", "male"),
        ("fr", "jardinière", "female"),
        ("fr", "dentiste", "both"),
        ("pt", "jardineira", "female"),
        ("pt", "dentista", "both"),
        ("es", "jardinero", "male"),
        ("es", "cantante", "both"),
    ],
)
def test_an_unknown_noun_is_read_by_its_ending(code, word, kind):
    assert (word.lower(),) not in load_lexicon(code).forms
    assert load_lexicon(code).guess_kind(word) == kind


def test_an_unsupported_language_is_refused_with_the_supported_ones():
    with pytest.raises(ValueError, match=r"de \(German\).*got 'ge'"):
        load_lexicon("ge")
