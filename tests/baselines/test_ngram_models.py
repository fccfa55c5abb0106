"""The n-gram classifier and regressor: their objectives, their gradients and their states, by other paths."""

import math
import random

import numpy as np
import pytest
from numpy.testing import assert_allclose
from safetensors.numpy import load, save
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression, Ridge

from saccade.baselines.linear_text import fit_linear_classifier, fit_ridge
from saccade.baselines.ngram_classifier import (
    NgramClassifier,
    fit_softmax_regression,
    fit_temperature,
    log_loss,
    log_softmax,
    naive_bayes_log_ratio,
)
from saccade.baselines.ngram_regressor import NgramRegressor, fit_ridge_weights


def reviews(count, seed, pair=False):
    """Texts whose label follows from one of their words."""
    draw = random.Random(seed)
    words = {"good": ["fine", "great", "lovely"], "bad": ["dull", "poor", "awful"], "so-so": ["fair", "plain", "usual"]}
    rows, gold = [], []
    for _ in range(count):
        label = draw.choice(list(words))
        noise = [f"word{draw.randrange(40)}" for _ in range(5)]
        text = " ".join(draw.sample([*noise, draw.choice(words[label])], 6))
        rows.append((text, noise[0]) if pair else (text,))
        gold.append(label)
    return rows, gold


def random_problem(labels=3, count=40, width=7):
    draw = np.random.default_rng(0)
    inputs = csr_array(draw.random((count, width)) * (draw.random((count, width)) < 0.5))
    return inputs, draw.integers(labels, size=count)


def test_naive_bayes_ratios_by_counting():
    inputs, gold = random_problem()
    dense = inputs.toarray() > 0
    ratios = naive_bayes_log_ratio(inputs, gold, 3)
    for label in range(3):
        p = [1 + sum(bool(row[f]) for row, g in zip(dense, gold, strict=True) if g == label) for f in range(7)]
        q = [1 + sum(bool(row[f]) for row, g in zip(dense, gold, strict=True) if g != label) for f in range(7)]
        expected = [math.log((p[f] / sum(p)) / (q[f] / sum(q))) for f in range(7)]
        assert_allclose(ratios[:, label], expected)


@pytest.mark.parametrize("labels", [2, 3])
def test_softmax_regression_without_scaling_is_that_of_scikit_learn(labels):
    """With two labels, scikit-learn fits the difference d of both columns: |V|² = d² / 2, so that its C is twice ours."""
    inputs, gold = random_problem(labels)
    weights, bias = fit_softmax_regression(inputs, gold, np.ones((7, labels)), c=1.0 if labels == 2 else 2.0)
    theirs = LogisticRegression(C=2.0, tol=1e-8, max_iter=1000).fit(inputs, gold)
    ours = np.exp(log_softmax(inputs @ weights + bias))
    assert_allclose(ours, theirs.predict_proba(inputs), atol=2e-3)


def test_the_scale_is_a_change_of_the_features():
    """With one scale for all labels, the model is that of the scaled features."""
    inputs, gold = random_problem()
    scale = np.linspace(0.5, 2, 7)[:, None]
    weights, bias = fit_softmax_regression(inputs, gold, np.repeat(scale, 3, 1), c=4.0)
    other, other_bias = fit_softmax_regression(csr_array(inputs.toarray() * scale.T), gold, np.ones((7, 3)), c=4.0)
    assert_allclose(inputs @ weights + bias, (inputs.toarray() * scale.T) @ other + other_bias, atol=5e-3)


def test_the_temperature_has_the_lowest_log_loss():
    draw = np.random.default_rng(1)
    logits = draw.normal(size=(300, 3))
    gold = np.array([draw.choice(3, p=row) for row in np.exp(log_softmax(logits))])
    temperature = fit_temperature(5 * logits, gold)  # five times too confident
    grid = np.linspace(1, 20, 400)
    assert temperature == pytest.approx(grid[np.argmin([log_loss(5 * logits / t, gold) for t in grid])], abs=0.1)
    assert temperature == pytest.approx(5, rel=0.3)


@pytest.mark.parametrize("pair", [False, True])
def test_a_classifier_learns_stores_and_explains(pair):
    train, dev, test = reviews(300, 0, pair), reviews(60, 1, pair), reviews(60, 2, pair)
    model = NgramClassifier.fit(*train, *dev)
    log_probabilities = model.predict_log_proba(test[0])
    assert np.mean([a == b for a, b in zip(model.predict(test[0]), test[1], strict=True)]) > 0.95
    assert_allclose(np.exp(log_probabilities).sum(1), 1, rtol=1e-5)
    restored = NgramClassifier.from_state(load(save(model.to_state())))
    assert restored.labels == model.labels
    assert_allclose(restored.predict_log_proba(test[0]), log_probabilities)
    # every contribution and the bias together are the logit, minus its mean over the labels
    for row in test[0][:3]:
        (logits,) = model.features.transform([row]) @ model.weights + model.bias
        for number, label in enumerate(model.labels):
            total = sum(one.value for one in model.contributions(row, label, limit=10_000))
            total += model.bias[number] - model.bias.mean()
            assert total == pytest.approx(logits[number] - logits.mean(), rel=1e-4, abs=1e-4)
    label = model.predict([test[0][0]])[0]
    assert model.contributions(test[0][0], label, limit=1)[0].value > 0


def test_the_mean_of_log_probabilities_is_one_linear_model():
    """Which lets the three models be stored as one."""
    draw = np.random.default_rng(2)
    logits = draw.normal(size=(3, 5, 4))
    mean_of_logs = np.mean([log_softmax(part) for part in logits], axis=0)
    assert_allclose(log_softmax(mean_of_logs), log_softmax(logits.mean(0)))


def test_dev_labels_that_training_lacks_are_left_out():
    rows, gold = reviews(60, 0)
    model = NgramClassifier.fit(rows, gold, [*rows[:5], ("what",)], [*gold[:5], "unseen"])
    assert "unseen" not in model.labels


def test_ridge_regression_is_that_of_scikit_learn():
    inputs, gold = random_problem()
    weights, bias = fit_ridge_weights(inputs, gold.astype(float), 0.7)
    theirs = Ridge(alpha=0.7, solver="cholesky").fit(inputs.toarray(), gold)
    assert_allclose(weights, theirs.coef_, atol=1e-4)
    assert bias == pytest.approx(theirs.intercept_, abs=1e-4)


def test_a_regressor_learns_stores_and_explains():
    stars = {"good": 5.0, "bad": 1.0, "so-so": 3.0}
    (rows, labels), (dev, dev_labels) = reviews(300, 0), reviews(60, 1)
    model = NgramRegressor.fit(rows, [stars[one] for one in labels], dev, [stars[one] for one in dev_labels])
    predicted = model.predict(dev)
    assert np.corrcoef(predicted, [stars[one] for one in dev_labels])[0, 1] > 0.9
    assert_allclose(NgramRegressor.from_state(load(save(model.to_state()))).predict(dev), predicted)
    total = sum(one.value for one in model.contributions(dev[0], limit=10_000))
    assert total + model.bias == pytest.approx(predicted[0])


def test_with_many_labels_one_model_is_fitted():
    rows = [(f"about topic{i % 12} and word{i % 7}",) for i in range(120)]
    chosen = fit_linear_classifier(rows, [f"label {i % 12}" for i in range(120)])
    assert chosen.name.startswith("LinearSVC(C=1) on")
    assert chosen.predict([("topic7",)]).tolist() == ["label 7"]


def test_linear_models_are_chosen_on_dev():
    (rows, labels), (dev, dev_labels) = reviews(200, 0), reviews(60, 1)
    chosen = fit_linear_classifier(rows, labels, dev, dev_labels)
    assert chosen.dev_score == np.mean(chosen.predict(dev) == np.array(dev_labels))
    assert chosen.dev_score > 0.9
    assert "C=" in chosen.name
    numbers = [float(len(text)) for (text,) in rows]
    ridge = fit_ridge(rows, numbers)  # no dev part: a tenth of the training examples
    assert ridge.name.startswith("Ridge(alpha=")
