"""Sets that recipes learn from: where their makers say they can be fetched, under which licence, and what to check.

Nothing here has been tried: the addresses are those that the makers document. A checksum stands only where we had the original
bytes. Sets whose licence is not open have no address: a person has to fetch them, and `--mirror` takes the copy.
"""

from dataclasses import dataclass

RAW = "https://raw.githubusercontent.com"
MEGA = 10**6


@dataclass(frozen=True)
class File:
    """One file of a set: its name here, its address, what it is called inside a zip, the most it may weigh, its digest."""

    name: str
    url: str = ""
    member: str = ""
    megabytes: int = 100
    sha256: str = ""


@dataclass(frozen=True)
class Set:
    name: str
    said: str
    licence: str
    page: str  # where the makers tell of it
    files: tuple[File, ...]

    @property
    def fetched(self) -> bool:
        """Whether there is an address to fetch it from."""
        return all(file.url for file in self.files)


def _zipped(url: str, members: dict[str, str], megabytes: int = 100) -> tuple[File, ...]:
    return tuple(File(name, url, member, megabytes) for name, member in members.items())


def _in(base: str, names: dict[str, str], megabytes: int = 100) -> tuple[File, ...]:
    return tuple(File(name, f"{base}/{theirs}", megabytes=megabytes) for name, theirs in names.items())


def _plain(*names: str) -> tuple[File, ...]:
    """Files that a person has to bring."""
    return tuple(File(name) for name in names)


ANKI = "https://www.manythings.org/anki"
TATOEBA = "CC BY 2.0 (tatoeba.org, manythings.org/anki)"
WIKITEXT = (
    "https://wikitext.smerity.com/wikitext-2-raw-v1.zip"  # of the first author; the first home of the set is gone
)
WIKIPEDIA = {
    "train": "6707892fa3788b5ab9ed78ab5ff37d9fe825f6011a2ad4fcd6a6d467f0e7da57",
    "valid": "4cd0f6876d07a413aa911261ff6d363c72d757d47f0fdd6015702014c89cb9c7",
    "test": "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08",
}
REELS = [f"reels{part}" for part in ("a-c", "d-g", "h-l", "m-q", "r-t", "u-z")]
TUNES = ["ashover", "hpps", "jigs", "morris", "playford", *REELS, "slip", "waltzes", "xmas"]
SHAKESPEARE = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
IDX = [f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
CAPTIONS = [f"{part}.{language}.gz" for part in ("train", "val", "test_2016_flickr") for language in ("en", "de")]

SETS = {
    entry.name: entry
    for entry in (
        Set(
            "tatoeba_fra_eng",
            "sentences in English and French",
            TATOEBA,
            ANKI,
            _zipped(f"{ANKI}/fra-eng.zip", {"fra.txt": "fra.txt"}),
        ),
        Set(
            "tatoeba_deu_eng",
            "sentences in English and German",
            TATOEBA,
            ANKI,
            _zipped(f"{ANKI}/deu-eng.zip", {"deu.txt": "deu.txt"}),
        ),
        Set(
            "multi30k",
            "captions of pictures in English and German",
            "none stated: for research",
            "https://github.com/multi30k/dataset",
            _plain(*CAPTIONS),
        ),
        Set(
            "sst2",
            "film reviews, good or bad",
            "none stated: for research",
            "https://nlp.stanford.edu/sentiment/",
            _plain("train.tsv", "dev.tsv", "test.tsv"),
        ),
        Set(
            "sick",
            "pairs of sentences: entailment and relatedness",
            "CC BY-NC-SA 3.0: not for commerce",
            "https://zenodo.org/records/2787612",
            _plain("train.tsv", "dev.tsv", "test.tsv"),
        ),
        Set(
            "mrpc",
            "pairs of sentences: paraphrases",
            "Microsoft's own: for research",
            "https://www.microsoft.com/en-us/download/details.aspx?id=52398",
            _plain("train.tsv", "val.tsv", "test.tsv"),
        ),
        Set(
            "wnut17",
            "names in noisy text",
            "CC BY 4.0",
            "https://github.com/leondz/emerging_entities_17",
            _in(
                f"{RAW}/leondz/emerging_entities_17/master",
                {
                    "train.conll": "wnut17train.conll",
                    "dev.conll": "emerging.dev.conll",
                    "test.conll": "emerging.test.annotated",
                },
            ),
        ),
        Set(
            "squad",
            "questions about Wikipedia: the development files of 1.1 and 2.0",
            "CC BY-SA 4.0",
            "https://rajpurkar.github.io/SQuAD-explorer/",
            _in(
                "https://rajpurkar.github.io/SQuAD-explorer/dataset",
                {"dev-v1.1.json": "dev-v1.1.json", "dev-v2.0.json": "dev-v2.0.json"},
            ),
        ),
        Set(
            "wikitext2",
            "articles of Wikipedia, raw",
            "CC BY-SA 3.0",
            "https://huggingface.co/datasets/Salesforce/wikitext",
            tuple(
                File(f"{part}.raw.txt", WIKITEXT, f"wikitext-2-raw/wiki.{part}.raw", sha256=digest)
                for part, digest in WIKIPEDIA.items()
            ),
        ),
        Set(
            "tinyshakespeare",
            "40,000 lines of Shakespeare",
            "public domain",
            "https://github.com/karpathy/char-rnn",
            (File("input.txt", f"{RAW}/karpathy/char-rnn/master/data/tinyshakespeare/input.txt", sha256=SHAKESPEARE),),
        ),
        Set(
            "scitldr",
            "one-sentence summaries of papers",
            "Apache-2.0",
            "https://github.com/allenai/scitldr",
            _in(
                f"{RAW}/allenai/scitldr/master/SciTLDR-Data/SciTLDR-A",
                {f"{part}.jsonl": f"{part}.jsonl" for part in ("train", "dev", "test")},
            ),
        ),
        Set(
            "moses_smiles",
            "molecules as SMILES",
            "MIT",
            "https://github.com/molecularsets/moses",
            _in(
                "https://media.githubusercontent.com/media/molecularsets/moses/master/data",
                {"train.csv": "train.csv"},
                megabytes=200,
            ),
        ),
        Set(
            "nottingham_abc",
            "folk tunes in ABC",
            "GPL-3.0",
            "https://github.com/jukedeck/nottingham-dataset",
            _in(
                f"{RAW}/jukedeck/nottingham-dataset/master/ABC_cleaned",
                {f"{name}.abc": f"{name}.abc" for name in TUNES},
            ),
        ),
        Set(
            "peptides_modlamp",
            "peptides, antimicrobial or not: a file of the Python package modlamp",
            "BSD-3-Clause",
            "https://modlamp.org",
            _plain("AMPvsUniProt.csv"),
        ),
        Set(
            "fashion_mnist",
            "clothes in 28 x 28 grey pixels",
            "MIT",
            "https://github.com/zalandoresearch/fashion-mnist",
            _in(f"{RAW}/zalandoresearch/fashion-mnist/master/data/fashion", {name: name for name in IDX}),
        ),
    )
}
