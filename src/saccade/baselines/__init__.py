"""Baselines: simple methods without a neural network, which a trained model has to beat. One file per method."""

from saccade.baselines.compression import gzip_bits_per_byte
from saccade.baselines.ibm1 import WordDictionary
from saccade.baselines.kneser_ney import KneserNey
from saccade.baselines.ngram_classifier import NgramClassifier
from saccade.baselines.ngram_regressor import NgramRegressor
from saccade.baselines.pixels import NearestNeighbor
from saccade.baselines.sentence_match import SentenceMatcher
from saccade.baselines.tagger import PerceptronTagger, TagLookup

__all__ = [
    "KneserNey",
    "NearestNeighbor",
    "NgramClassifier",
    "NgramRegressor",
    "PerceptronTagger",
    "SentenceMatcher",
    "TagLookup",
    "WordDictionary",
    "gzip_bits_per_byte",
]
