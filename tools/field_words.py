"""Vocabulary of public names: for each word in a public name of this package, an API of another library that uses it.

    python tools/field_words.py            # writes tests/structure/field_words.json

The libraries are those installed next to this package; their public names are those of modules, classes, functions, methods,
parameters and fields. A word that none of them uses needs a source in field_words_by_hand.json (a paper, or an API of a library
that is not installed). Words without any source are printed, and the tests reject them.
"""

import ast
import json
import re
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
DICTIONARY = ROOT / "tests" / "structure" / "field_words.json"
BY_HAND = ROOT / "tests" / "structure" / "field_words_by_hand.json"  # word -> source
LIBRARIES = (
    "torch", "transformers", "sklearn", "sentence_transformers", "tokenizers", "sentencepiece", "huggingface_hub",
    "safetensors", "numpy", "scipy", "sacrebleu", "nltk", "seqeval", "rouge_score", "matplotlib", "PIL", "fastapi",
    "starlette", "uvicorn", "tyro", "rich", "pydantic", "llguidance", "jinja2", "babel", "tomli_w", "pytest",
    "hypothesis", "networkx", "sympy", "regex",
)  # fmt: skip
STDLIB = Path(ast.__file__).parent
IRREGULAR = {"shown": "show", "met": "meet", "worst": "bad", "spoken": "speak"}


def split_words(name: str) -> list[str]:
    """
    >>> split_words("BLEUScore"), split_words("max_new_tokens"), split_words("Int8TiledLinear")
    (['bleu', 'score'], ['max', 'new', 'tokens'], ['int', 'tiled', 'linear'])
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_\d]+", " ", name)
    return [word.lower() for word in spaced.split()]


def stems_of(word: str) -> list[str]:
    """Other forms of a word that a library may use: the singular, the verb, the word without a prefix.

    >>> stems_of("summaries"), stems_of("tokenized"), stems_of("unused")
    (['summary', 'summarie', 'summari'], ['tokeniz', 'tokenize'], ['unus', 'unuse', 'use', 'used'])
    """
    stems: list[str] = [IRREGULAR[word]] if word in IRREGULAR else []
    rules = [
        ("ies", "y"), ("s", ""), ("es", ""), ("ed", ""), ("ed", "e"), ("ing", ""), ("ing", "e"), ("er", ""),
        ("er", "e"), ("ly", ""), ("able", ""), ("able", "e"), ("ness", ""), ("est", ""), ("ist", "y"),
        ("ies", "ie"), ("th", ""), ("lled", "l"), ("pped", "p"), ("nned", "n"), ("tters", "t"), ("tting", "t"),
        ("tive", "te"), ("ions", "e"), ("ion", "e"), ("ations", "e"), ("ation", "e"),
    ]  # fmt: skip
    forms = [word, *(word[len(prefix) :] for prefix in ("un", "re", "non", "in", "dis") if word.startswith(prefix))]
    for form in forms:
        stems += [form.removesuffix(ending) + other for ending, other in rules if form.endswith(ending)]
    stems += forms[1:]
    return [stem for stem in dict.fromkeys(stems) if len(stem) > 2 and stem != word]


def public_names(tree: ast.Module, parameters: bool = True) -> Iterator[str]:
    """Qualified names of the public module-level and class-level definitions of a file."""

    def visit(node: ast.AST, prefix: str) -> Iterator[str]:
        for child in getattr(node, "body", ()):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if child.name.startswith("_"):
                    continue
                yield prefix + child.name
                if isinstance(child, ast.ClassDef):
                    yield from visit(child, f"{prefix}{child.name}.")
                elif parameters:
                    arguments = child.args
                    for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                        yield f"{prefix}{child.name}({parameter.arg})"
            elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
                if not child.target.id.startswith("_"):
                    yield prefix + child.target.id
            elif isinstance(child, ast.Assign):
                for target in child.targets:
                    if isinstance(target, ast.Name) and not target.id.startswith("_"):
                        yield prefix + target.id
            elif isinstance(child, ast.If | ast.Try):
                yield from visit(child, prefix)

    yield from visit(tree, "")


def last_part(name: str) -> str:
    """
    >>> last_part("Tokenizer.encode(max_tokens)"), last_part("Tokenizer.encode"), last_part("encode")
    ('max_tokens', 'encode', 'encode')
    """
    return name.rstrip(")").replace("(", ".").rpartition(".")[2]


def parse(path: Path) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError, ValueError):
        return None


def package_words() -> dict[str, str]:
    """Each word in the public names of this package, with the first name that contains it."""
    words: dict[str, str] = {}
    package = ROOT / "src" / "saccade"
    for path in sorted(package.rglob("*.py")):
        module = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
        tree = parse(path)
        names = [*module.split("."), *(public_names(tree) if tree else ())]
        for name in names:
            for word in split_words(last_part(name)):
                words.setdefault(word, f"{module}.{name}" if name not in module.split(".") else module)
    return words


def library_words(words: set[str]) -> dict[str, str]:
    """Those of the words that occur in a public name of a library, with that name."""
    found: dict[str, str] = {}
    packages = [
        Path(spec.submodule_search_locations[0])
        for name in LIBRARIES
        if (spec := find_spec(name)) and spec.submodule_search_locations
    ]
    for package in [*packages, STDLIB]:
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent if package != STDLIB else package).with_suffix("").parts
            if any(
                part.startswith(("_", "test")) or part in ("tests", "testing", "site-packages", "idlelib", "lib2to3")
                for part in parts[:-1]
            ):
                continue
            tree = parse(path)
            module = ".".join(parts).removesuffix(".__init__")
            for name in [*parts, *(public_names(tree) if tree else ())]:
                for word in split_words(last_part(name)):
                    if word in words and word not in found:
                        found[word] = f"{module}.{name}" if name not in parts else module
    return found


def main() -> int:
    ours = package_words()
    by_hand = json.loads(BY_HAND.read_text(encoding="utf-8"))
    found = library_words({*ours, *(stem for word in ours for stem in stems_of(word))})
    merged = {}
    for word in sorted(ours):
        stem = next((stem for stem in stems_of(word) if stem in found), None)
        merged[word] = found.get(word) or (f"{stem}: {found[stem]}" if stem else by_hand.get(word, ""))
    missing = {word: ours[word] for word, source in merged.items() if not source}
    DICTIONARY.write_text(
        json.dumps({w: s for w, s in merged.items() if s}, indent=0, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    for word, place in missing.items():
        print(f"{word}: not in the public names of any library; used in {place}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
