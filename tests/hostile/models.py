"""All hostile directories in one table, by group; their names are unique."""

from hostile import configs, index, texts, vocabs, weights
from hostile.case import Case

GROUPS: dict[str, list[Case]] = {
    "weights": weights.CASES,
    "index": index.CASES,
    "config": configs.CASES,
    "tokenizer": texts.CASES,
    "vocabulary and pooling": vocabs.CASES,
}
CASES: dict[str, Case] = {one.name: one for cases in GROUPS.values() for one in cases}
