"""Catalog of the datasets that recipes train on: license, homepage, download URLs and checksums.

The URLs are those that the authors document; downloading from them has not been tested. A checksum is given only for files whose
original bytes were at hand. Datasets without an open license have no URL: fetch them yourself and name the copy with `--mirror`.
"""

from dataclasses import dataclass

GITHUB_RAW_URL = "https://raw.githubusercontent.com"
BYTES_PER_MEGABYTE = 10**6


@dataclass(frozen=True)
class DatasetFile:
    """One file of a dataset."""

    name: str  # the name under which it is stored
    url: str = ""
    zip_member: str = ""  # its name in the archive, where the URL is that of a zip file
    max_megabytes: int = 100  # size limit of the download
    sha256: str = ""


@dataclass(frozen=True)
class DatasetInfo:
    name: str
    description: str
    license: str
    homepage: str
    files: tuple[DatasetFile, ...]

    @property
    def is_downloadable(self) -> bool:
        """Whether every file has a URL."""
        return all(file.url for file in self.files)


def _list_zip_files(url: str, members: dict[str, str], max_megabytes: int = 100) -> tuple[DatasetFile, ...]:
    return tuple(DatasetFile(name, url, member, max_megabytes) for name, member in members.items())


def _list_url_files(base_url: str, names: dict[str, str], max_megabytes: int = 100) -> tuple[DatasetFile, ...]:
    return tuple(
        DatasetFile(name, f"{base_url}/{theirs}", max_megabytes=max_megabytes) for name, theirs in names.items()
    )


def _list_manual_files(*names: str) -> tuple[DatasetFile, ...]:
    """Files without a URL, which have to be downloaded by hand."""
    return tuple(DatasetFile(name) for name in names)


ANKI_URL = "https://www.manythings.org/anki"
TATOEBA_LICENSE = "CC BY 2.0 (tatoeba.org, manythings.org/anki)"
WIKITEXT_URL = "https://wikitext.smerity.com/wikitext-2-raw-v1.zip"  # of the first author; the original host is gone
WIKITEXT_SHA256 = {
    "train": "6707892fa3788b5ab9ed78ab5ff37d9fe825f6011a2ad4fcd6a6d467f0e7da57",
    "valid": "4cd0f6876d07a413aa911261ff6d363c72d757d47f0fdd6015702014c89cb9c7",
    "test": "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08",
}
NOTTINGHAM_REELS = [f"reels{part}" for part in ("a-c", "d-g", "h-l", "m-q", "r-t", "u-z")]
NOTTINGHAM_FILES = ["ashover", "hpps", "jigs", "morris", "playford", *NOTTINGHAM_REELS, "slip", "waltzes", "xmas"]
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
FASHION_MNIST_FILES = [
    f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
]
MULTI30K_FILES = [f"{part}.{language}.gz" for part in ("train", "val", "test_2016_flickr") for language in ("en", "de")]

DATASETS = {
    entry.name: entry
    for entry in (
        DatasetInfo(
            "tatoeba_fra_eng",
            "parallel sentences in English and French",
            TATOEBA_LICENSE,
            ANKI_URL,
            _list_zip_files(f"{ANKI_URL}/fra-eng.zip", {"fra.txt": "fra.txt"}),
        ),
        DatasetInfo(
            "tatoeba_deu_eng",
            "parallel sentences in English and German",
            TATOEBA_LICENSE,
            ANKI_URL,
            _list_zip_files(f"{ANKI_URL}/deu-eng.zip", {"deu.txt": "deu.txt"}),
        ),
        DatasetInfo(
            "multi30k",
            "image captions in English and German",
            "none stated: research only",
            "https://github.com/multi30k/dataset",
            _list_manual_files(*MULTI30K_FILES),
        ),
        DatasetInfo(
            "sst2",
            "film reviews, positive or negative (sentiment)",
            "none stated: research only",
            "https://nlp.stanford.edu/sentiment/",
            _list_manual_files("train.tsv", "dev.tsv", "test.tsv"),
        ),
        DatasetInfo(
            "sick",
            "sentence pairs: entailment and relatedness",
            "CC BY-NC-SA 3.0: non-commercial use",
            "https://zenodo.org/records/2787612",
            _list_manual_files("train.tsv", "dev.tsv", "test.tsv"),
        ),
        DatasetInfo(
            "mrpc",
            "sentence pairs: paraphrase or not",
            "Microsoft's own license: research only",
            "https://www.microsoft.com/en-us/download/details.aspx?id=52398",
            _list_manual_files("train.tsv", "val.tsv", "test.tsv"),
        ),
        DatasetInfo(
            "wnut17",
            "named entities in noisy text (NER)",
            "CC BY 4.0",
            "https://github.com/leondz/emerging_entities_17",
            _list_url_files(
                f"{GITHUB_RAW_URL}/leondz/emerging_entities_17/master",
                {
                    "train.conll": "wnut17train.conll",
                    "dev.conll": "emerging.dev.conll",
                    "test.conll": "emerging.test.annotated",
                },
            ),
        ),
        DatasetInfo(
            "squad",
            "questions about Wikipedia: the dev sets of 1.1 and 2.0",
            "CC BY-SA 4.0",
            "https://rajpurkar.github.io/SQuAD-explorer/",
            _list_url_files(
                "https://rajpurkar.github.io/SQuAD-explorer/dataset",
                {"dev-v1.1.json": "dev-v1.1.json", "dev-v2.0.json": "dev-v2.0.json"},
            ),
        ),
        DatasetInfo(
            "wikitext2",
            "raw Wikipedia articles (language modeling)",
            "CC BY-SA 3.0",
            "https://huggingface.co/datasets/Salesforce/wikitext",
            tuple(
                DatasetFile(f"{part}.raw.txt", WIKITEXT_URL, f"wikitext-2-raw/wiki.{part}.raw", sha256=digest)
                for part, digest in WIKITEXT_SHA256.items()
            ),
        ),
        DatasetInfo(
            "tinyshakespeare",
            "40,000 lines of Shakespeare",
            "public domain",
            "https://github.com/karpathy/char-rnn",
            (
                DatasetFile(
                    "input.txt",
                    f"{GITHUB_RAW_URL}/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
                    sha256=SHAKESPEARE_SHA256,
                ),
            ),
        ),
        DatasetInfo(
            "scitldr",
            "one-sentence summaries of papers",
            "Apache-2.0",
            "https://github.com/allenai/scitldr",
            _list_url_files(
                f"{GITHUB_RAW_URL}/allenai/scitldr/master/SciTLDR-Data/SciTLDR-A",
                {f"{part}.jsonl": f"{part}.jsonl" for part in ("train", "dev", "test")},
            ),
        ),
        DatasetInfo(
            "moses_smiles",
            "molecules as SMILES",
            "MIT",
            "https://github.com/molecularsets/moses",
            _list_url_files(
                "https://media.githubusercontent.com/media/molecularsets/moses/master/data",
                {"train.csv": "train.csv"},
                max_megabytes=200,
            ),
        ),
        DatasetInfo(
            "nottingham_abc",
            "folk tunes in ABC notation",
            "GPL-3.0",
            "https://github.com/jukedeck/nottingham-dataset",
            _list_url_files(
                f"{GITHUB_RAW_URL}/jukedeck/nottingham-dataset/master/ABC_cleaned",
                {f"{name}.abc": f"{name}.abc" for name in NOTTINGHAM_FILES},
            ),
        ),
        DatasetInfo(
            "peptides_modlamp",
            "peptides, antimicrobial or not: a file of the Python package modlamp",
            "BSD-3-Clause",
            "https://modlamp.org",
            _list_manual_files("AMPvsUniProt.csv"),
        ),
        DatasetInfo(
            "fashion_mnist",
            "images of clothes, 28 x 28 gray pixels",
            "MIT",
            "https://github.com/zalandoresearch/fashion-mnist",
            _list_url_files(
                f"{GITHUB_RAW_URL}/zalandoresearch/fashion-mnist/master/data/fashion",
                {name: name for name in FASHION_MNIST_FILES},
            ),
        ),
    )
}
