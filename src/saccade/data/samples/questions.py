"""Short passages about who has what, where, since when, in which colour and how many, with questions about them.

A passage has two to four sentences, written from the frames below; each is about one person and their things. Within a
passage no two people have the same things, colour, number, place or time, so a question that names one of these has one
answer, and the answer stands in the passage once. About one question in six has no answer there: it asks for a person or a
thing that does not occur, for one person's share of another's things, or for a time that is not said. Those have an empty
list of answers. An answer is (start, text), its first character and what stands there. Three questions in a row are about
one passage.
"""

import re
from random import Random
from typing import Any

from saccade.data.example import Example
from saccade.data.samples.base import Sample, draw_distinct, make_random
from saccade.data.samples.names import FIRST_NAMES, THINGS

QUESTIONS_PER_PASSAGE = 3  # questions for each passage
UNANSWERABLE_FRACTION = 1 / 6  # of the questions

SENTENCE_TEMPLATES = """
{who} keeps {number} {color} {things} in the {place}.
{who} got {number} {color} {things} in {time} and put them in the {place}.
In {time}, {who} brought {number} {color} {things} to the {place}.
There are {number} {color} {things} in the {place}; they have been {who}'s since {time}.
The {color} {things} in the {place} belong to {who}, who has had all {number} of them since {time}.
In the {place} stand {number} {things}, all of them {color}, which {who} bought in {time}.
Since {time}, {who} has had {number} {things} in the {place}, and every one of them is {color}.
All {number} {things} in the {place} are {color}, and they are {who}'s.
""".strip().splitlines()

QUESTION_TEMPLATES = {  # what is asked for -> ways to ask, by one thing that belongs to one person alone or by several
    "who": [
        "Who has the {things}?",
        "Whose are the {color} {things} in the {place}?",
        "Who has {number} {color} {things}?",
        "Whose things are in the {place}?",
    ],
    "things": [
        "What does {who} have?",
        "What does {who} have in the {place}?",
        "Which {color} things does {who} have?",
        "What is in the {place}?",
    ],
    "place": [
        "Where are the {things}?",
        "Where does {who} keep the {things}?",
        "Where are {who}'s {color} {things}?",
        "Where are {who}'s things?",
    ],
    "color": [
        "What colour are the {things}?",
        "What colour are {who}'s {things}?",
        "What colour are {who}'s {things} in the {place}?",
        "What colour are the things in the {place}?",
    ],
    "number": [
        "How many {things} are there?",
        "How many {things} does {who} have?",
        "How many {color} {things} does {who} have in the {place}?",
        "How many things are in the {place}?",
    ],
    "time": ["Since when has {who} had the {things}?", "When did {who} get the {color} {things}?"],
}
UNANSWERABLE_TEMPLATES = [  # asked of one person about another's things, or of what does not occur
    "Where does {who} keep the {things}?",
    "How many {things} does {who} have?",
    "When did {who} get the {things}?",
    "What colour are {who}'s {things}?",
]

_split_list = str.split  # a long list reads better as one text

PEOPLE = [name for name in FIRST_NAMES if name != "May"][
    ::2
]  # which is a month too; half of them, so that each is met often
COLORS = _split_list("red blue green yellow black white grey brown purple orange pink golden")
PLACES = _split_list(
    "attic cellar garden garage kitchen library museum office school shed station theatre tower workshop"
)
NUMBER_WORDS = _split_list("two three four five six seven eight nine ten eleven twelve") + [
    str(n) for n in range(13, 60)
]
MONTHS = _split_list("January February March April May June July August September October November December")


def make_passage(random: Random) -> tuple[str, list[dict[str, tuple[int, str]]]]:
    """A text, and for each of its people what is said of them: slot -> (start, words)."""
    count = random.randint(2, 4)
    columns = {
        "who": random.sample(PEOPLE, count),
        "things": random.sample(THINGS, count),
        "color": random.sample(COLORS, count),
        "number": random.sample(NUMBER_WORDS, count),
        "place": random.sample(PLACES, count),
        "time": [f"{random.choice(MONTHS)} {year}" for year in random.sample(range(1950, 2025), count)],
    }
    text, facts = "", []
    for i, frame in enumerate(random.sample(SENTENCE_TEMPLATES, count)):
        text += " " if text else ""
        said: dict[str, tuple[int, str]] = {}
        for part in re.split(r"(\{\w+\})", frame):
            slot = part.strip("{}")
            words = columns[slot][i] if part.startswith("{") else part
            if part.startswith("{"):
                said[slot] = (len(text), words)
            text += words
        facts.append(said)
    return text, facts


def make_question(random: Random, facts: list[dict[str, tuple[int, str]]]) -> tuple[str, list[tuple[int, str]]]:
    """A question about a passage, and its answer."""
    known = random.choice(facts)
    words = {slot: said for slot, (_, said) in known.items()}
    if random.random() < UNANSWERABLE_FRACTION:
        return _make_unanswerable(random, facts, words), []
    slot = random.choice(sorted(known))
    return random.choice(QUESTION_TEMPLATES[slot]).format(**words), [known[slot]]


def _make_unanswerable(random: Random, facts: list[dict[str, tuple[int, str]]], words: dict[str, str]) -> str:
    """One person and another's things, or a person or things that the passage does not have; or a time that is not said."""
    if "time" not in words and random.random() < 0.5:
        return random.choice(QUESTION_TEMPLATES["time"]).format(**words)
    kind = random.choice(["things", "who", "other"])
    there = {facts_of[kind][1] for facts_of in facts} if kind != "other" else set()
    if kind == "other":
        other = random.choice([f["things"][1] for f in facts if f["things"][1] != words["things"]])
        return random.choice(UNANSWERABLE_TEMPLATES).format(who=words["who"], things=other)
    absent = random.choice([name for name in (THINGS if kind == "things" else PEOPLE) if name not in there])
    return random.choice(UNANSWERABLE_TEMPLATES).format(
        **{"who": words["who"], "things": words["things"], kind: absent}
    )


def make(count: int, seed: int) -> list[Example]:
    """Examples with `context`, `question` and `answers`, a list of one answer or of none."""
    random = make_random("questions", seed)
    text, facts, left = "", [], 0

    def draw() -> dict[str, Any]:
        nonlocal text, facts, left
        if not left:
            (text, facts), left = make_passage(random), QUESTIONS_PER_PASSAGE
        left -= 1
        question, answers = make_question(random, facts)
        return {"context": text, "question": question, "answers": answers}

    return draw_distinct("questions", draw, count, key=lambda row: (row["context"], row["question"]))


SAMPLE = Sample("questions", "short passages with questions, one in six without an answer", ("span",), make, 18_000)
