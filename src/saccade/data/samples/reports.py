"""Short reports of a match, a day's weather or a day's trading, each with the one sentence that sums it up.

The facts are drawn first, and both texts are written from them. So the summary is exact, and it is found nowhere in the report as
it stands: the goals have to be counted, the coldest and the warmest hour and the worst of the weather found, the first price
told from the last; and each report has sentences that matter to none of this.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from saccade.data.example import Example
from saccade.data.samples.base import Sample, draw_distinct, make_random
from saccade.data.samples.names import FIRST_NAMES, LAST_NAMES, list_cities

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
CLUBS = ["United", "Rovers", "City", "Athletic", "Wanderers", "Harriers"]
SKY_CONDITIONS = {  # from the best to the worst: as a sentence has it, and as the summary calls it
    "the sun shone": "sun",
    "clouds hid the sky": "clouds",
    "fog lay over the roofs": "fog",
    "it rained": "rain",
    "snow fell": "snow",
    "a storm raged": "storms",
}
HOURS = ["In the early morning", "At noon", "In the afternoon", "Late in the evening"]
FIRM_SUFFIXES = ["Steel", "Mills", "Shipping", "Glass", "Motors", "Paper", "Timber", "Optics"]
MATCH_DISTRACTORS = [
    "{count} people had come to watch.",
    "The referee, {person}, was busy from the first minute.",
    "{person} missed the match with a sore knee.",
    "The grass was wet and the passes were long.",
    "After the break both sides changed their keepers.",
]
WEATHER_DISTRACTORS = [
    "{person} sold umbrellas at the station.",
    "The ferries ran late.",
    "{count} people saw it on the train from {place}, said {person}.",
    "The wind came from the west.",
    "Schools stayed open.",
]
TRADING_DISTRACTORS = [
    "{count} shares changed hands.",
    "{person}, who leads the firm, said nothing.",
    "Analysts had expected a quiet day.",
    "The firm was founded in {place} and makes less than it used to.",
    "{person} called the trading nervous.",
]


def make_match_report(random: Random) -> tuple[list[str], str]:
    """Goals by two sides; the summary counts them."""
    home, away = (f"{place} {random.choice(CLUBS)}" for place in random.sample(list_cities(), 2))
    early, late = _draw_distractors(random, MATCH_DISTRACTORS)
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
        told.append(how.format(minute=minute, name=random.choice(LAST_NAMES), side=side))
    told.append(late)
    (winner, more), (loser, less) = sorted(goals.items(), key=lambda pair: -pair[1])
    if more == less:
        return told, f"{home} and {away} drew {more}-{less}."
    return told, f"{winner} beat {loser} {more}-{less}."


def make_weather_report(random: Random) -> tuple[list[str], str]:
    """Skies and degrees at three or four hours; the summary has the worst, the lowest and the highest."""
    place, day = random.choice(list_cities()), random.choice(DAYS)
    hours = HOURS if random.random() < 0.5 else HOURS[:3]
    start = random.randrange(-12, 26)
    degrees = random.sample(range(start, start + 12), len(hours))
    skies = [random.choice(list(SKY_CONDITIONS)) for _ in hours]
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
    told.insert(random.randrange(2, len(told) + 1), _draw_distractors(random, WEATHER_DISTRACTORS)[0])
    worst = max(skies, key=list(SKY_CONDITIONS).index)
    return told, f"{place} had {SKY_CONDITIONS[worst]} on {day} and {min(degrees)} to {max(degrees)} degrees."


def make_trading_report(random: Random) -> tuple[list[str], str]:
    """Prices through a day; the summary has the first and the last, and which way they lie."""
    firm, day = f"{random.choice(LAST_NAMES)} {random.choice(FIRM_SUFFIXES)}", random.choice(DAYS)
    first, noon, last = (random.randrange(20, 400) for _ in range(3))
    if random.random() < 0.1:
        last = first
    early, late = _draw_distractors(random, TRADING_DISTRACTORS)
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


REPORT_MAKERS: dict[str, Callable[[Random], tuple[list[str], str]]] = {
    "match": make_match_report,
    "weather": make_weather_report,
    "trading": make_trading_report,
}


def make(count: int, seed: int) -> list[Example]:
    """Examples with a report as the `source`, its summary as the `target`, and the `kind` of report."""
    random = make_random("reports", seed)

    def draw() -> dict[str, Any]:
        kind = random.choice(list(REPORT_MAKERS))
        told, summary = REPORT_MAKERS[kind](random)
        return {"source": " ".join(told), "target": summary, "kind": kind}

    return draw_distinct("reports", draw, count)


def _draw_distractors(random: Random, sentences: list[str]) -> list[str]:
    """Two sentences that a summary has no use for."""
    person = f"{random.choice(FIRST_NAMES)} {random.choice(LAST_NAMES)}"
    slots = {"person": person, "count": f"{random.randrange(100, 60_000):,}", "place": random.choice(list_cities())}
    return [sentence.format(**slots) for sentence in random.sample(sentences, 2)]


SAMPLE = Sample("reports", "reports of matches, weather and trading with a summary", ("summarize",), make, 6_000)
