"""What generated texts are held to: molecules by RDKit and by syntax, tunes by their bars, proteins, notes; three shares."""

import json
import sys
from collections import Counter
from importlib.util import find_spec
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.cli import main
from saccade.data.read.midi import notes_to_text, parse_notes
from saccade.data.samples import get_sample, molecules, proteins, tunes
from saccade.decoding.sampling import Sampler
from saccade.tasks.language import Config as LanguageConfig
from saccade.tasks.records import check_abc_tune, check_smiles, validity
from saccade.tasks.records.generate import generate_records
from saccade.tasks.records.validity import check_validity, get_record_format
from saccade.tasks.registry import task_class

needs_rdkit = pytest.mark.skipif(not find_spec("rdkit"), reason="RDKit is not installed: the extra chem")


@pytest.fixture
def without_rdkit(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    validity._smiles.cache_clear()
    yield
    validity._smiles.cache_clear()


# molecules

BROKEN = {
    "C1CC": "ring 1 is open",
    "C(C": "a branch is open",
    "CC)C": "was not opened",
    "C((C)C)C": "( cannot follow an opening parenthesis",
    "CC=": "ends with a bond",
    "=CC": "= cannot follow nothing",
    "C()C": ") cannot follow an opening parenthesis",
    "C==C": "= cannot follow a bond",
    "[Xx]C": "[Xx] is not an atom",
    "[CC": "is not SMILES",
    "C?C": "is not SMILES",
    "C11": "already bonded",
    "C1C1": "already bonded",
    "1CC1": "1 cannot follow nothing",
    "C..C": ". cannot follow a dot",
    "": "empty",
    "C%1C": "is not SMILES",
}
SOUND = "C|CCO|c1ccccc1|C1CC1.[Na+]|[nH]1cccc1|C/C=C\\C|N[C@@H](C)C(=O)O|C%12CC%12|[13CH4]"
SOUND += "|OC(=O)c1ccc(cc1)S(N)(=O)=O|[O-][N+](=O)c1c2ccccc2cs1"


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_no_smiles_is_named(text):
    assert BROKEN[text] in check_smiles(text)


@pytest.mark.parametrize("text", SOUND.split("|"))
def test_what_is_a_smiles_passes(text):
    assert check_smiles(text) == ""


@needs_rdkit
def test_rdkit_agrees_about_both():
    fault = get_record_format("smiles").find_fault
    assert all(fault(text) for text in BROKEN)
    assert not any(fault(text) for text in SOUND.split("|"))
    assert "valence" in fault("C(C)(C)(C)(C)C")  # five bonds: the syntax is sound
    assert check_smiles("C(C)(C)(C)(C)C") == ""


@needs_rdkit
def test_whatever_rdkit_reads_the_syntax_allows():
    """Damage molecules at random: what RDKit still takes must pass."""
    from rdkit import Chem, rdBase

    whole = [example["text"].strip() for example in get_sample("molecules").make(50, 3)]

    @settings(deadline=None, max_examples=300)
    @given(st.sampled_from(whole), st.integers(0, 60), st.sampled_from("CNOcn()12=#.[]%F+-H"), st.booleans())
    def agree(text, at, letter, over):
        damaged = text[:at] + letter + text[at + over :]
        with rdBase.BlockLogs():
            if Chem.MolFromSmiles(damaged) is not None:
                assert check_smiles(damaged) == "", damaged

    agree()


@needs_rdkit
def test_every_molecule_of_the_sample_is_one_and_few_are_the_same():
    texts = [example["text"] for example in get_sample("molecules").make(1500, 7)]
    found = check_validity(texts, get_record_format("smiles"))
    assert found.validity == 1.0, found.faults
    assert found.uniqueness > 0.9
    assert "RDKit" in found.format_description


def test_the_sample_has_rings_branches_and_aromatic_atoms():
    texts = [example["text"].strip() for example in get_sample("molecules").make(molecules.SAMPLE.default_count, 0)]
    assert all(check_smiles(text) == "" for text in texts)
    letters = Counter(letter for text in texts for letter in set(text))
    assert min(letters[letter] for letter in "c1(=N2") > 0.15 * len(texts)


def test_without_rdkit_the_syntax_is_checked_and_that_is_said(without_rdkit):
    kind = get_record_format("smiles")
    assert "syntax" in kind.description
    assert "valences are not checked" in kind.description
    assert "saccade[chem]" in kind.description
    assert check_validity(["CCO", "C1CC", "OCC"], kind, ["CCO"]).as_dict() | {"format_description": ""} == {
        "format_description": "",
        "count": 3,
        "valid": 2,
        "unique": 2,
        "novel": 1,
        "faults": {"C1CC": "ring 1 is open"},
        "validity": pytest.approx(2 / 3),
        "uniqueness": 1.0,
        "novelty": 0.5,
    }


@needs_rdkit
def test_two_writings_of_one_molecule_are_one():
    found = check_validity(["CCO", "OCC", "CCN"], get_record_format("smiles"), ["C(O)C"])
    assert (found.valid, found.unique, found.novel) == (3, 2, 1)


# tunes

HEAD = "X:1\nM:3/4\nL:1/8\nK:G\n"
TUNES = {
    HEAD + "|:G2B2d2|GABcde|d6:|": "",
    HEAD + "D2|G2B2d2|GABcde|d4:|": "",  # an upbeat, and what it takes from the end
    HEAD + "G2B2d2|GABcd|d6|c6:|": "bar 2 has a length of 5/8 instead of 3/4",
    HEAD + "G2B2d2e|d6|]": "bar 1 has a length of 7/8 instead of 3/4",
    HEAD + "G3/2B/2d2B2|(3GABc2d2|[GBd]6|z6|]": "",
    HEAD + "G>Bd2B2|G<Bd2B2|G>>Bd2B2|d6|]": "",
    HEAD + '"G"G2{a}B2!trill!d2|G2 B2 d2 | ~d6|]': "",
    HEAD + "G2B2d2|[M:2/4]G2B2|G2B2|M|]": "",
    HEAD + "G2B2d2|$%": "",
    "X:1\nM:6/8\nK:D\nd3f3|a6|d6|]": "",  # without L the unit is an eighth
    "X:1\nM:2/4\nK:D\nd4f4|a8|d8|]": "",  # and below three quarters a sixteenth
    "T:none\nK:G\nG2|": "does not begin with X:",
    "X:1\nM:3/4\nG6|": "no key",
    HEAD: "no notes",
    HEAD + "GAB": "no bar lines",
    HEAD + "G2B2d2|G2?2|": "is not ABC",
    "X:1\nhello\nK:G\nG8|": "is not a field",
}


@pytest.mark.parametrize("text", TUNES)
def test_bars_are_counted(text):
    assert TUNES[text] in check_abc_tune(text)
    assert bool(TUNES[text]) == bool(check_abc_tune(text))


def test_every_tune_of_the_sample_is_one_by_the_check_and_by_counting_letters():
    texts = [example["text"] for example in get_sample("tunes").make(800, 2)]
    found = check_validity(texts, get_record_format("abc"))
    assert found.validity == 1.0, found.faults
    assert found.uniqueness > 0.99
    for text in texts:
        fields = dict(line.split(":", 1) for line in text.split("\n")[:4])
        eighths = {"4/4": 8, "3/4": 6, "6/8": 6}[fields["M"]]
        body = "".join(text.split("\n")[4:])
        for bar in body.replace("|:", "|").replace(":|", "|").strip("|").split("|"):
            figures = [int(c) for c in bar if c.isdigit()]
            plain = sum(c.isalpha() for c in bar) - len(figures)
            assert not bar or sum(figures) + plain == eighths, text
        last = body.rstrip(":|").rstrip("0123456789,'")[-1].upper()
        assert last == fields["K"][0]
    assert {text.split("\n")[3] for text in texts} == {f"K:{key}" for key in tunes.KEYS}


def test_a_tune_under_another_name_is_the_same():
    tune = HEAD + "|:G2B2d2|GABcde|d6:|"
    other = "X:7\nT:Another\n" + tune.removeprefix("X:1\n").replace("|GABcde|", "| GAB cde |")
    assert check_validity([tune, other], get_record_format("abc")).unique == 1


# proteins and notes


def test_residues():
    kind = get_record_format("protein")
    assert [kind.find_fault(text) for text in ("MKV", "mkvx", "MK1", "MK V", "")] == [
        "",
        "",
        "'1' is not a residue",
        "' ' is not a residue",
        "it is empty",
    ]


def test_residues_of_the_sample_are_as_frequent_as_the_chain_says():
    texts = [example["text"].strip() for example in get_sample("proteins").make(1500, 3)]
    assert all(text[0] == "M" and 40 <= len(text) <= 160 for text in texts)
    stay = 1 - torch.tensor(list(proteins.END_PROBABILITIES.values()), dtype=torch.float64)
    move = torch.diag(stay)  # helix, strand, turn
    move[0, 2], move[1, 2], move[2, 0], move[2, 1] = 1 - stay[0], 1 - stay[1], (1 - stay[2]) / 2, (1 - stay[2]) / 2
    long = torch.linalg.matrix_power(move, 200)[0]
    wanted = long @ torch.tensor(
        [proteins.compute_residue_probabilities(state) for state in proteins.END_PROBABILITIES], dtype=torch.float64
    )
    found = Counter("".join(text[20:] for text in texts))
    for residue, share in zip(proteins.RESIDUES, wanted.tolist(), strict=True):
        assert found[residue] / found.total() == pytest.approx(share, rel=0.08), residue
    after = Counter(a + b for text in texts for a, b in pairwise(text))
    assert after["LE"] / found["L"] > 1.1 * after["VE"] / found["V"]  # helices and strands can be told apart


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(1, 192), st.integers(0, 127)), min_size=1, max_size=9))
def test_notes_come_back_as_they_were(rows):
    from saccade.data.read.midi import Note

    notes = sorted({Note(*row) for row in rows}, key=lambda note: (note.start, note.pitch, note.duration))
    first = notes[0].start
    assert parse_notes(notes_to_text(notes)) == [note._replace(start=note.start - first) for note in notes]


def test_notes_that_are_none():
    kind = get_record_format("midi")
    assert kind.find_fault("60.12 +12 62.6") == ""
    assert "'60' is neither" in kind.find_fault("60 61")
    assert "pitch below 128" in kind.find_fault("128.4")
    assert "duration from 1" in kind.find_fault("60.0")
    assert "no notes" in kind.find_fault("+12")


# records that a model writes


def test_an_unknown_kind_names_the_nearest():
    with pytest.raises(ValueError, match=r"task\.record_format is 'smile'; did you mean 'smiles'"):
        task_class("language")(LanguageConfig(record_format="smile")).fit([])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small run on a few proteins, not learnt well."""
    where = tmp_path_factory.mktemp("run")
    data = str(where / "p.fasta")
    small = "--model.width 16 --model.layers 1 --model.ffn-width 16 --model.heads 2 --task.max-tokens 32 --train.max-steps 40"
    assert main(["data", "get", "proteins", data, "--count", "40"]) == 0
    given = [
        "--task.record-format",
        "protein",
        "--train.lr",
        "1e-2",
        "--train.max-eval-examples",
        "2",
        "--train.batch-tokens",
        "512",
    ]
    assert main(["train", "language", "--data", data, "--out", str(where / "run"), *small.split(), *given]) == 0
    return str(where / "run")


@pytest.mark.parametrize("border", ["\n", "AL", "Y"])
def test_records_end_at_the_border_and_never_hold_it(run, border):
    from saccade.tasks.runs.run import open_run

    model = open_run(run).model
    found = generate_records(model, 70, Sampler(seed=3), separator=border, prefix="M", max_new_tokens=30)
    assert len(found) == 70
    assert all(one.text.startswith("M") and border not in one.text[1:] for one in found)
    assert {one.is_complete for one in found} == {True, False}
    assert all(len(one.text) <= 31 for one in found)
    assert found == generate_records(model, 70, Sampler(seed=3), separator=border, prefix="M", max_new_tokens=30)


def test_texts_without_a_border_are_as_long_as_asked_for(run, capsys):
    """What is valid is any text, so all of them are, wherever they stop."""
    capsys.readouterr()
    asked = ["--record-format", "none", "--count", "3", "--max-new-tokens", "12", "--json"]
    assert main(["generate", run, "M", *asked]) == 0
    texts = json.loads(capsys.readouterr().out)["texts"]
    assert [len(text) for text in texts] == [13] * 3
    assert len(set(texts)) > 1
    assert main(["generate", run, "M", *asked, "--check"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["texts"], told["valid"]) == (texts, 3)


def test_records_take_stop_strings_and_refuse_what_searches(run, capsys):
    capsys.readouterr()
    assert main(["generate", run, "--count", "20", "--stop", "A", "L", "--json"]) == 0
    assert not any({"A", "L"} & set(text) for text in json.loads(capsys.readouterr().out)["texts"])
    assert main(["generate", run, "--beams", "2"]) == 2
    assert "Records are sampled one by one" in capsys.readouterr().err


def test_generate_writes_and_checks(run, capsys):
    capsys.readouterr()
    assert main(["generate", run, "--count", "9", "--check"]) == 0
    out, err = capsys.readouterr()
    assert len(out.split("\n")) == 10
    assert "of 9" in err
    assert "novel " in err
    assert main(["generate", run, "--count", "9", "--check", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["texts"] == out.split("\n")[:9]
    sound = [text for text in told["texts"] if text and set(text) <= validity.RESIDUES and text not in told["faults"]]
    assert told["count"] == 9
    assert told["valid"] <= len(sound) + 9 - len(told["texts"])
    assert told["novelty"] is not None


def test_generate_may_be_told_another_kind_and_refuses_other_tasks(run, capsys):
    assert main(["generate", run, "--count", "2", "--record-format", "smiles", "--check"]) == 0
    assert "SMILES" in capsys.readouterr().err
    assert main(["generate", run, "--count", "0", "--check"]) == 2
    assert "--count is 0; it must be at least 1" in capsys.readouterr().err
    assert main(["generate", run, "--record-format", "none", "--max-new-tokens", "5"]) == 0
    assert len(capsys.readouterr().out.rstrip("\n")) <= 6
