"""Every public name is made of words that the field uses, and the field's terms lead by search to the code that they name."""

import ast
import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "saccade"
sys.path.insert(0, str(ROOT / "tools"))
from field_words import LIBRARIES, last_part, package_words, parse, public_names, split_words  # noqa: E402

WORDS = json.loads((Path(__file__).parent / "field_words.json").read_text(encoding="utf-8"))
MAX_FILES_IN_A_FOLDER = 25
IRREGULAR_PARTICIPLES = {
    "told", "said", "held", "kept", "drawn", "given", "seen", "known", "made", "found", "taken", "shown", "asked",
    "met", "brought", "caught", "done", "felt", "fed", "forgotten", "gone", "grown", "heard", "laid", "led", "lent",
    "lost", "meant", "sent", "sold", "spent", "spoken", "stuck", "taught", "thought", "thrown", "understood",
    "worn", "written", "begun", "built", "chosen",
}  # fmt: skip
# adjectives that name a mechanism or a state, with a source of the field
ADJECTIVES = {
    "windowed": "windowed attention: Swin, Liu et al. 2021, arXiv 2103.14030",
    "strided": "strided attention: Child et al. 2019, arXiv 1904.10509",
    "learned": "learned positional embeddings: Gehring et al. 2017, arXiv 1705.03122",
    "unlabeled": "unlabeled data: scikit-learn user guide, semi-supervised learning",
    "unpadded": "unpadded sequences: transformers, flash attention's unpad_input",
}
VERBS_AND_NOUNS = {"embed", "feed", "seed", "speed", "need"}  # that end in -ed
TERMS = [
    "KV cache", "weight decay", "early stopping", "gradient accumulation", "gradient clipping", "batch size",
    "EMA", "label smoothing", "cross-attention", "n-gram", "prefill", "fine-tun", "few-shot", "beam search",
    "warmup", "mixed precision", "hyperparameter", "checkpoint",
]  # fmt: skip


def test_every_word_of_a_public_name_is_a_word_of_the_field():
    """`python tools/field_words.py` writes the dictionary from the libraries; other words need a source by hand."""
    unknown = {word: place for word, place in package_words().items() if word not in WORDS}
    assert not unknown, unknown


def test_every_entry_of_the_dictionary_names_its_source():
    """A public name of a library of the field or of Python, or, by hand, a few words that say where the word is used."""
    by_hand = json.loads((Path(__file__).parent / "field_words_by_hand.json").read_text(encoding="utf-8"))
    known = {*LIBRARIES, *sys.stdlib_module_names}
    for word, source in WORDS.items():
        library = source.rpartition(": ")[2].split(".")[0]
        assert library in known or (source == by_hand[word] and len(source.split()) > 1), (word, source)
    for word, source in by_hand.items():
        assert not source.startswith("as ") or source.removeprefix("as ") in by_hand, word


def participles(names):
    for name in names:
        words = split_words(last_part(name))
        if len(words) == 1 and words[0] not in VERBS_AND_NOUNS | ADJECTIVES.keys():
            word = words[0]
            if word in IRREGULAR_PARTICIPLES or word.endswith("ed"):
                yield name


def test_no_module_class_or_public_function_is_a_bare_participle():
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        tree = parse(path)
        assert tree is not None
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        defined = [node for part in (tree, *classes) for node in part.body]
        named = [path.stem, *(node.name for node in defined if isinstance(node, ast.ClassDef | ast.FunctionDef))]
        found += [
            f"{path.relative_to(SOURCE)}: {name}" for name in participles(name for name in named if name[0] != "_")
        ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "bare"), [("told", True), ("Asked", True), ("drawn", True), ("load_seed", False), ("embed", False)]
)
def test_what_counts_as_a_bare_participle(name, bare):
    assert bool(list(participles([name]))) == bare


def test_no_folder_has_too_many_files():
    for root in (SOURCE, ROOT / "tests"):
        counts = Counter(path.parent for path in root.rglob("*.py"))
        assert {str(folder): n for folder, n in counts.items() if n > MAX_FILES_IN_A_FOLDER} == {}


def test_classes_of_one_name_are_told_apart_by_their_package():
    """Each family and task has its `Config`; any other class name is used once."""
    homes = Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in homes.items() if count > 2} <= {"Config"}


@pytest.mark.parametrize("term", TERMS)
def test_a_term_of_the_field_leads_to_the_place_where_the_thing_is(term):
    found = [
        path for path in SOURCE.rglob("*.py") if re.search(re.escape(term), path.read_text(encoding="utf-8"), re.I)
    ]
    assert found, f"no source file says {term!r}"


def test_public_names_are_found():
    tree = ast.parse("class A:\n    width: int\n    def to(self, x): ...\n    def _hidden(self): ...\nLIMIT = 3\n")
    assert list(public_names(tree)) == ["A", "A.width", "A.to", "A.to(self)", "A.to(x)", "LIMIT"]
