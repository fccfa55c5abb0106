"""The linear tagger: Viterbi against all paths, averaging against a plain mean, and what its features learn."""

from itertools import product

import numpy as np
from numpy.testing import assert_allclose

from saccade.baselines.tagger import PerceptronTagger, TagLookup, repair_bio, viterbi, word_features


def test_viterbi_finds_the_best_of_all_paths():
    draw = np.random.default_rng(0)
    for length in (1, 2, 5):
        scores, transitions = draw.normal(size=(length, 3)), draw.normal(size=(4, 3))

        def total(path, scores=scores, transitions=transitions):
            steps = zip([3, *path], path, strict=False)
            return sum(transitions[a, b] for a, b in steps) + sum(scores[i, tag] for i, tag in enumerate(path))

        best = max(product(range(3), repeat=length), key=total)
        assert viterbi(scores, transitions).tolist() == list(best)


def test_weights_are_the_mean_over_all_steps():
    """The same perceptron with a copy of its weights after every step."""
    texts = [["Ada", "met", "Bo"], ["the", "cat"], ["Bo", "saw", "the", "dog"], ["May", "came"]]
    gold = [["B", "O", "B"], ["O", "O"], ["B", "O", "O", "O"], ["B", "O"]]
    history = []

    class Recorded(PerceptronTagger):
        def _update(self, rows, gold, late, step):
            super()._update(rows, gold, late, step)
            history.append((self.weights.copy(), self.transitions.copy()))

    tagger = Recorded.fit(texts, gold, epochs=3)
    # step t's update counts from step t on: the mean of the weights before each step, over steps 1 to n, and the last update
    before = [tuple(np.zeros_like(part) for part in history[0]), *history[:-1]]
    assert len(history) == 12
    assert_allclose(tagger.weights, np.mean([weights for weights, _ in before], axis=0), atol=1e-12)
    assert_allclose(tagger.transitions, np.mean([transitions for _, transitions in before], axis=0), atol=1e-12)


def test_an_update_moves_weight_from_the_wrong_tag_to_the_right_one():
    tagger = PerceptronTagger.fit([["Ada"], ["cat"]] * 4, [["B"], ["O"]] * 4)
    assert tagger.predict(["Ada"]) == ["B"]
    assert tagger.predict(["cat"]) == ["O"]
    assert_allclose(tagger.weights.sum(1), 0, atol=1e-12)  # what one tag gains, another loses
    assert tagger.predict([]) == []


def test_every_word_has_as_many_features():
    for words in (["I"], ["Ada", "Lovelace", "1815", "?"]):
        assert len({len(row) for row in word_features(words)}) == 1


def test_shapes_find_unseen_names_where_the_lookup_cannot():
    names, verbs = ["Ada", "Bo", "Carl", "Dora", "Emil", "Fay"], ["met", "saw", "knew"]
    texts = [[a, verb, b] for a in names for verb in verbs for b in ("dogs", "cats")]
    gold = [["B-PER", "O", "O"]] * len(texts)
    assert PerceptronTagger.fit(texts, gold).predict(["Gus", "met", "cows"]) == ["B-PER", "O", "O"]
    assert TagLookup.fit(texts, gold).predict(["Gus", "met", "cows"]) == ["O", "O", "O"]


def test_repaired_tags_begin_with_b():
    for tags in product(["O", "B-X", "I-X", "I-Y"], repeat=3):
        fixed = repair_bio(tags)
        for previous, tag in zip(["O", *fixed], fixed, strict=False):
            assert not tag.startswith("I-") or previous[2:] == tag[2:]
        assert [tag[2:] for tag in fixed] == [tag[2:] for tag in tags]
