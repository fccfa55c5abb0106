"""Which column plays which role: as the caller says, by its name, or by what stands in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from shlex import quote
from typing import Any

from saccade.data.item import Role
from saccade.data.read.header import is_number
from saccade.data.read.nested import is_object, other_of, text_pair
from saccade.data.read.record import Ask, Record, plain_name
from saccade.data.read.source import Source
from saccade.errors import DataError

PAIR = ("source", "target")
SPANS = ("spans", "entities", "labels", "label", "annotations")
MISSING = object()
IDS = ("id", "guid", "uid", "idx", "index", "example_id")
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff")


@dataclass(frozen=True)
class Choice:
    """role -> its columns (one, or several for numbers); for words that have to be cut from a text, where that stands."""

    columns: Mapping[str, list[str]]
    text: str = ""
    spans: str = ""

    def said(self) -> str:
        parts = [f"{role} is {_listed(names)}" for role, names in self.columns.items()]
        if self.text:
            parts.append(f"words are cut from column {self.text}" + (f", tags from {self.spans}" if self.spans else ""))
        return "; ".join(parts)


def _listed(names: list[str]) -> str:
    if len(names) == 1:
        return f"column {names[0]}"
    return f"columns {', '.join(names if len(names) < 8 else [*names[:3], '...', names[-1]])}"


def parse_columns(text: str) -> dict[str, str]:
    """What --columns says.

    >>> parse_columns("text=review,label=2")
    {'text': 'review', 'label': '2'}
    >>> parse_columns("x=1,2,3,y=4")
    {'x': '1,2,3', 'y': '4'}
    """
    found: dict[str, str] = {}
    role = ""
    for part in filter(None, text.split(",")):
        if "=" in part:
            role, _, name = part.partition("=")
            role = role.strip()
            found[role] = name.strip()
        elif role:
            found[role] += f",{part.strip()}"
        if not role or not found[role]:
            cure = "write ROLE=COLUMN, for example --columns text=review,label=stars or text=1,label=2"
            raise DataError("--columns is not understood", value=text, cure=cure)
    return found


def look_up(fields: Mapping[str, Any], name: str) -> Any:
    """A field by its name, or a nested one by a dotted path; MISSING if it is not there."""
    if name in fields:
        return fields[name]
    found: Any = fields
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return MISSING
        found = found[part]
    return found


def choose(source: Source, ask: Ask, records: Sequence[Record]) -> Choice:
    """The columns for every role, from the first records of a file."""
    names = _names(records)
    numbered = bool(names) and all(name == str(i + 1) for i, name in enumerate(names))
    _check_roles(source, ask)
    if numbered and len(names) < sum(not role.shared for role in ask.roles):
        wanted = " and ".join(role.name for role in ask.roles)
        what, cure = f"too few columns, {len(names)}, for {wanted}", "put a tab or a comma between the cells of a row"
        first = records[0]
        raise DataError(what, file=source.path, line=first.line, column="1", value=first.fields["1"], cure=cure)
    chosen: dict[str, list[str]] = {}
    for role in ask.roles:
        if role.name in ask.columns:
            parts = ask.columns[role.name].split(",")
            chosen[role.name] = [_named(source, role, part, records) for part in parts]
    for role in ask.roles:
        if role.name not in chosen and not numbered:
            whole = [name for name in names if role.kind != "text" or not is_object(name, records)]
            found = _known(role, whole, _taken(ask, chosen))
            if found:
                chosen[role.name] = [found]
    _pair_up(ask, chosen, records)
    cut = _cut(ask, names, chosen, records)
    if cut is not None:
        return cut
    left = [role for role in ask.roles if role.name not in chosen]
    if any(role.kind == "numbers" for role in left) or numbered:
        _by_content(left, names, chosen, records, guess=numbered, taken=_taken(ask, chosen))
    elif left and len(names) == len(ask.roles) == 1:
        chosen[left[0].name] = names
    for role in left:
        if role.name not in chosen:
            raise _unknown(source, role, role.known, records, taken=[name for used in chosen.values() for name in used])
    return Choice({role.name: chosen[role.name] for role in ask.roles})


def _pair_up(ask: Ask, chosen: dict[str, list[str]], records: Sequence[Record]) -> None:
    """Where a pair of texts is in one object and the role of one is known, the other has the other role.

    A target that was only recognised by its name does not tell the direction, as many languages are known as targets.
    """
    known = [name for name in PAIR if name in chosen]
    if known not in (["source"], ["target"]) or not {role.name for role in ask.roles} >= set(PAIR):
        return
    other = other_of(text_pair(records), chosen[known[0]][0])
    if other is not None and ("source" in chosen or "target" in ask.columns):
        chosen[PAIR[1 - PAIR.index(known[0])]] = [other]


def _names(records: Sequence[Record]) -> list[str]:
    names: dict[str, None] = {}
    for record in records:
        for name, value in record.fields.items():
            if isinstance(value, Mapping):
                names |= dict.fromkeys(f"{name}.{inner}" for inner in value)
            names[name] = None
    return list(names)


def _check_roles(source: Source, ask: Ask) -> None:
    for name in ask.columns:
        if name not in {role.name for role in ask.roles}:
            wanted = ", ".join(role.name for role in ask.roles)
            cure = f"name one of {wanted}: --columns {ask.roles[0].name}=COLUMN"
            raise DataError(
                f"--columns names a role that is not asked for; asked for are {wanted}", value=name, cure=cure
            )


def _named(source: Source, role: Role, given: str, records: Sequence[Record]) -> str:
    """The column that the caller means: its name, else its number."""
    names = _names(records)
    if given in names:
        return given
    near = [name for name in names if plain_name(name) == plain_name(given)]
    if near:
        return near[0]
    if given.isdecimal() and 1 <= int(given) <= len(names):
        return names[int(given) - 1]
    raise _unknown(source, role, (given,), records)


def _unknown(
    source: Source, role: Role, wanted: Sequence[str], records: Sequence[Record], *, taken: Sequence[str] = ()
) -> DataError:
    names = _names(records)
    plain = {plain_name(name): name for name in names}
    close = [get_close_matches(plain_name(name), plain, n=1, cutoff=0.7) for name in wanted]
    near = [plain[match] for found in close for match in found]
    near += [name for name in names if set(plain_name(name).split("_")) & set(wanted)]
    guess = near[0] if near else _likeliest(role, [name for name in names if name not in taken], records)
    there = ", ".join(names if len(names) <= 12 else [*names[:12], f"and {len(names) - 12:,} more"])
    sought = ", ".join(list(wanted)[:6]) or role.name
    what = f"no column for {role.name}: looked for {sought}; there are {there or 'none'}"
    written = str(names.index(guess) + 1) if "," in guess else guess  # a comma would end its name there
    cure = f"name it: --columns {quote(f'{role.name}={written}')}" + (" (the nearest)" if near else "")
    pair = text_pair(records)
    if role.name in PAIR and pair is not None and not near:
        cure = f"name both: --columns source={pair[0]},target={pair[1]}, or the other way round"
    return DataError(what, file=source.path, line=1, cure=cure)


def _likeliest(role: Role, names: list[str], records: Sequence[Record]) -> str:
    """The column to name where no name is near: of texts the longest, of labels the few that repeat."""
    cells = _cells(names, records)
    worded = [name for name in names if any(isinstance(record.fields.get(name), str) for record in records)]
    worded = [name for name in worded if not all(map(is_number, filter(None, cells[name])))]
    varied = [name for name in names if len(set(cells[name])) > 1]
    if role.kind in ("text", "texts", "line", "words") and worded:
        return _longest(worded, cells)
    if role.kind in ("label", "labels", "tags") and varied:
        return _fewest(varied, cells)
    return names[-1] if names else "NAME"


def _cells(names: list[str], records: Sequence[Record]) -> dict[str, list[str]]:
    return {name: [str(record.fields.get(name, "")).strip() for record in records] for name in names}


def _longest(names: Sequence[str], cells: Mapping[str, list[str]]) -> str:
    return max(names, key=lambda name: sum(map(len, cells[name])))


def _richest(names: Sequence[str], cells: Mapping[str, list[str]]) -> str:
    """The column of the most different words: tags are few, however long."""
    return max(names, key=lambda name: len({word for cell in cells[name] for word in cell.split()}))


def _fewest(names: Sequence[str], cells: Mapping[str, list[str]]) -> str:
    """The column of few and short values."""
    return min(names, key=lambda name: len(set(cells[name])) * (1 + sum(map(len, cells[name]))))


def _known(role: Role, names: list[str], used: set[str]) -> str | None:
    """The first of a role's known names that is there, whole or as the end of a dotted path."""
    free = [name for name in names if name not in used]
    for known in (role.name, *role.known):
        for name in free:
            if plain_name(name) == known:
                return name
    for known in (role.name, *role.known):
        ends = [name for name in free if "." in name and plain_name(name.rsplit(".", 1)[1]) == known]
        if len(ends) == 1:
            return ends[0]
    return None


def _cut(ask: Ask, names: list[str], chosen: dict[str, list[str]], records: Sequence[Record]) -> Choice | None:
    """Words that are not there as a list, but can be cut from a text, with or without spans."""
    words = next(iter(ask.of("words")), None)
    if words is None or words.name in chosen:
        return None
    text = next((name for name in names if plain_name(name) in ("text", "sentence", "content", "tweet")), "")
    if not text:
        return None
    if not ask.has("tags"):
        return Choice({}, text)
    spans = [name for name in SPANS if name in names and any(isinstance(r.fields.get(name), list) for r in records)]
    return Choice({}, text, spans[0]) if spans else None


def _taken(ask: Ask, chosen: Mapping[str, list[str]]) -> set[str]:
    """The columns that no other role may have."""
    return {name for role in ask.roles if not role.shared for name in chosen.get(role.name, ())}


def _by_content(
    left: list[Role],
    names: list[str],
    chosen: dict[str, list[str]],
    records: Sequence[Record],
    *,
    guess: bool,
    taken: set[str],
) -> None:
    """Fill the roles left over by what stands in the columns; without `guess` only all the numbers that nobody claims."""
    cells = _cells(names, records)
    free = [name for name in names if name not in taken and sum(map(bool, cells[name])) > len(records) / 10]
    numeric = [name for name in free if all(map(is_number, filter(None, cells[name]))) and plain_name(name) not in IDS]
    texts = sum(role.kind in ("text", "line", "words") for role in left)
    for role in sorted(left, key=lambda role: ORDER.index(role.kind) if role.kind in ORDER else len(ORDER)):
        found: list[str] = []
        if role.kind == "numbers":
            found = [name for name in numeric if name in free]
        elif not guess:
            continue
        elif role.kind == "number":
            found = [name for name in numeric if name in free][-1:]
        elif role.kind == "image":
            found = [name for name in free if any(cell.lower().endswith(PICTURES) for cell in cells[name])][:1]
        elif role.kind in ("label", "labels") and len(free) > texts:
            found = [_fewest(free, cells)]
        elif texts == 1 and free:
            found = [(_richest if any(other.kind == "tags" for other in left) else _longest)(free, cells)]
        elif role.kind in ("text", "line"):
            found = [name for name in free if name not in numeric][:1] or free[:1]
        if found:
            chosen[role.name] = found
            free = [name for name in free if name not in found]


ORDER = ("image", "number", "label", "labels", "numbers", "text", "line", "words")  # the harder to mistake, the earlier
