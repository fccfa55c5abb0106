"""Syntax check of SMILES: atoms, bonds, closed branches and closed rings. Valences and aromaticity are not checked.

Weininger, 1988: https://doi.org/10.1021/ci00057a005; the grammar is that of http://opensmiles.org
"""

import re

_split_words = str.split  # a long list is more readable as one string
ELEMENTS = frozenset(
    _split_words(
        "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr "
        "Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir "
        "Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl "
        "Mc Lv Ts Og b c n o p s se as *"
    )
)
TOKEN_PATTERN = re.compile(
    r"(?P<atom>Cl|Br|[BCNOPSFI]|[bcnops]|\*)|(?P<bracket>\[[^\[\]]*\])|(?P<bond>[-=#$:/\\~])|(?P<ring>%\d\d|\d)"
    r"|(?P<open>\()|(?P<close>\))|(?P<dot>\.)"
)
BRACKET_ATOM_PATTERN = re.compile(
    r"\[\d{0,3}(?P<element>[A-Z][a-z]?|se|as|[bcnops]|\*)(@{1,2}|@(TH|AL|SP|TB|OH)\d{1,2})?(H\d?)?([+-]\d{1,2}|\++|-+)?(:\d+)?\]"
)
ALLOWED_BEFORE = {  # kinds of tokens that may precede a token
    "atom": ("", "atom", "bond", "ring", "open", "close", "dot"),
    "bond": ("atom", "ring", "open", "close"),
    "ring": ("atom", "ring", "bond"),
    "open": ("atom", "ring", "close"),
    "close": ("atom", "ring", "close"),
    "dot": ("atom", "ring", "close"),
}


KIND_NAMES = {"": "nothing", "atom": "an atom", "bond": "a bond", "ring": "a ring number", "dot": "a dot"} | {
    "open": "an opening parenthesis",
    "close": "a closing parenthesis",
}


def check_smiles(text: str) -> str:
    """The first fault of a SMILES string, or "" if its syntax is valid.

    >>> check_smiles("c1ccccc1C(=O)O"), check_smiles("C1CC"), check_smiles("C(C"), check_smiles("[Xx]")
    ('', 'ring 1 is open', 'a branch is open', '[Xx] is not an atom')
    """
    previous, position, atom, branches = "", 0, -1, list[int]()
    rings: dict[str, int] = {}
    bonds: set[frozenset[int]] = set()
    for number, match in enumerate(TOKEN_PATTERN.finditer(text)):
        token, kind = match.group(), str(match.lastgroup)
        if match.start() != position:
            break
        position = match.end()
        if kind == "bracket":
            bracket = BRACKET_ATOM_PATTERN.fullmatch(token)
            if bracket is None or bracket["element"] not in ELEMENTS:
                return f"{token} is not an atom"
            kind = "atom"
        if previous not in ALLOWED_BEFORE[kind]:
            return f"{token} cannot follow {KIND_NAMES[previous]}"
        if kind == "atom":
            if previous not in ("", "dot"):
                bonds.add(frozenset((atom, number)))
            atom = number
        elif kind == "ring":
            fault = _open_or_close_ring(token.removeprefix("%").lstrip("0") or "0", atom, rings, bonds)
            if fault:
                return fault
        elif kind == "open":
            branches.append(atom)
        elif kind == "close":
            if not branches:
                return "a branch is closed but was not opened"
            atom = branches.pop()
        previous = kind
    if position != len(text) or not text:
        return f"{text[position:][:10]!r} is not SMILES" if text else "it is empty"
    if branches:
        return "a branch is open"
    if rings:
        return f"ring {next(iter(rings))} is open"
    return "it ends with a bond" if previous not in ("atom", "ring", "close") else ""


def _open_or_close_ring(name: str, atom: int, rings: dict[str, int], bonds: set[frozenset[int]]) -> str:
    """Open a ring, or close it with a bond between two atoms that are not bonded yet."""
    if name not in rings:
        rings[name] = atom
        return ""
    bond = frozenset((rings.pop(name), atom))
    if len(bond) == 1 or bond in bonds:
        return f"ring {name} joins atoms that are already bonded"
    bonds.add(bond)
    return ""
