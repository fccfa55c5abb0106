"""Short reports of a match, a day's weather or a day's trading, each with the one sentence that sums it up.

The facts are drawn first, and both texts are written from them. So the summary is exact, and it is found nowhere in the report as
it stands: the goals have to be counted, the coldest and the warmest hour and the worst of the weather found, the first price
told from the last; and each report has sentences that matter to none of this.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from saccade.data.item import Example
from saccade.data.samples.seeded import Sample, distinct, source
from saccade.data.samples.tagged import FIRST, LAST, cities

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
CLUBS = ["United", "Rovers", "City", "Athletic", "Wanderers", "Harriers"]
SKIES = {  # from the best to the worst: as a sentence has it, and as the summary calls it
    "the sun shone": "sun",
    "clouds hid the sky": "clouds",
    "fog lay over the roofs": "fog",
    "it rained": "rain",
    "snow fell": "snow",
    "a storm raged": "storms",
}
HOURS = ["In the early morning", "At noon", "In the afternoon", "Late in the evening"]
TRADES = ["Steel", "Mills", "Shipping", "Glass", "Motors", "Paper", "Timber", "Optics"]
CROWD = [
    "{count} people had come to watch.",
    "The referee, {person}, was busy from the first minute.",
    "{person} missed the match with a sore knee.",
    "The grass was wet and the passes were long.",
    "After the break both sides changed their keepers.",
]
STREET = [
    "{person} sold umbrellas at the station.",
    "The ferries ran late.",
    "{count} people saw it on the train from {place}, said {person}.",
    "The wind came from the west.",
    "Schools stayed open.",
]
FLOOR = [
    "{count} shares changed hands.",
    "{person}, who leads the firm, said nothing.",
    "Analysts had expected a quiet day.",
    "The firm was founded in {place} and makes less than it used to.",
    "{person} called the trading nervous.",
]


def match(random: Random) -> tuple[list[str], str]:
    """Goals by two sides; the summary counts them."""
    home, away = (f"{place} {random.choice(CLUBS)}" for place in random.sample(cities(), 2))
    early, late = _asides(random, CROWD)
    told = [f"{home} met {away} on {random.choice(DAYS)}.", early]
    goals = {home: 0, away: 0}
    for minute in sorted(random.sample(range(2, 91), random.choice([0, 1, 1, 2, 2, 3, 3, 4]))):
        side = random.choice([home, away])
        goals[side] += 1
        how = random.choice(
            [
                "In minute {minute} {name} scored for {side}.",
                "{name} put the ball in the net for {side} in minute {minute}.",
                "A header by {name} in minute {minute} was a goal for {side}.",
            ]
        )
        told.append(how.format(minute=minute, name=random.choice(LAST), side=side))
    told.append(late)
    (winner, more), (loser, less) = sorted(goals.items(), key=lambda pair: -pair[1])
    if more == less:
        return told, f"{home} and {away} drew {more}-{less}."
    return told, f"{winner} beat {loser} {more}-{less}."


def weather(random: Random) -> tuple[list[str], str]:
    """Skies and degrees at three or four hours; the summary has the worst, the lowest and the highest."""
    place, day = random.choice(cities()), random.choice(DAYS)
    hours = HOURS if random.random() < 0.5 else HOURS[:3]
    start = random.randrange(-12, 26)
    degrees = random.sample(range(start, start + 12), len(hours))
    skies = [random.choice(list(SKIES)) for _ in hours]
    told = [f"This was {day} in {place}."]
    for hour, sky, degree in zip(hours, skies, degrees, strict=True):
        told.append(
            random.choice(
                [
                    f"{hour} {sky} and the thermometer showed {degree} degrees.",
                    f"{hour} it was {degree} degrees and {sky}.",
                ]
            )
        )
    told.insert(random.randrange(2, len(told) + 1), _asides(random, STREET)[0])
    worst = max(skies, key=list(SKIES).index)
    return told, f"{place} had {SKIES[worst]} on {day} and {min(degrees)} to {max(degrees)} degrees."


def trading(random: Random) -> tuple[list[str], str]:
    """Prices through a day; the summary has the first and the last, and which way they lie."""
    firm, day = f"{random.choice(LAST)} {random.choice(TRADES)}", random.choice(DAYS)
    first, noon, last = (random.randrange(20, 400) for _ in range(3))
    if random.random() < 0.1:
        last = first
    early, late = _asides(random, FLOOR)
    told = [
        random.choice(
            [f"Shares in {firm} opened at {first} on {day}.", f"On {day} the first price of {firm} was {first}."]
        ),
        early,
        f"By noon they stood at {noon}.",
        late,
        random.choice([f"They closed at {last}.", f"When the bell rang they cost {last}."]),
    ]
    if first == last:
        return told, f"{firm} ended {day} where it began, at {last}."
    return told, f"{firm} {'rose' if last > first else 'fell'} from {first} to {last} on {day}."


KINDS: dict[str, Callable[[Random], tuple[list[str], str]]] = {"match": match, "weather": weather, "trading": trading}


def make(count: int, seed: int) -> list[Example]:
    """Examples with a report as the `source`, its summary as the `target`, and the `kind` of report."""
    random = source("reports", seed)

    def draw() -> dict[str, Any]:
        kind = random.choice(list(KINDS))
        told, summary = KINDS[kind](random)
        return {"source": " ".join(told), "target": summary, "kind": kind}

    return distinct("reports", draw, count)


def _asides(random: Random, sentences: list[str]) -> list[str]:
    """Two sentences that a summary has no use for."""
    person = f"{random.choice(FIRST)} {random.choice(LAST)}"
    slots = {"person": person, "count": f"{random.randrange(100, 60_000):,}", "place": random.choice(cities())}
    return [sentence.format(**slots) for sentence in random.sample(sentences, 2)]


SAMPLE = Sample("reports", "reports of matches, weather and trading, and a summary", ("summarise",), make, 6_000)
