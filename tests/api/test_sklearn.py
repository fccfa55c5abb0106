"""`saccade.sklearn`: the estimators in scikit-learn's own tools, and by its own checks."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from saccade.sklearn import TextClassifier, TextRegressor

TINY = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16}
SHORT = {"max_steps": 30, "max_eval_examples": 20}
WORDS = {"lovely": 1, "great": 1, "awful": -1, "boring": -1}
TEXTS = [f"a {word} film {number}" for number in range(12) for word in WORDS]
LABELS = np.array([WORDS[text.split()[1]] for text in TEXTS])


def classifier(**settings):
    return TextClassifier(**({"architecture": TINY, "train": SHORT, "lr": 1e-2} | settings))


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(TEXTS, LABELS)


def test_probabilities_are_in_the_order_of_the_classes(fitted):
    found = fitted.predict_proba(TEXTS)
    assert fitted.classes_.tolist() == [-1, 1]
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-6)
    assert (fitted.predict(TEXTS) == fitted.classes_[found.argmax(1)]).all()
    assert fitted.score(TEXTS, LABELS) == (fitted.predict(TEXTS) == LABELS).mean() > 0.7
    for data in (pd.Series(TEXTS), np.array(TEXTS), pd.DataFrame({"text": TEXTS})):
        np.testing.assert_array_equal(fitted.predict_proba(data), found)
    assert fitted.predict_proba([]).shape == (0, 2)


def test_a_pickle_holds_the_run_and_a_clone_none(fitted):
    wanted = fitted.predict_proba(TEXTS[:5])
    again = pickle.loads(pickle.dumps(fitted))
    assert again.run_.path != fitted.run_.path
    np.testing.assert_array_equal(again.predict_proba(TEXTS[:5]), wanted)
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        fresh.predict(TEXTS)


def test_in_a_pipeline_cross_validation_and_a_grid(tmp_path):
    made = Pipeline(
        [("lower", FunctionTransformer(lambda texts: [text.lower() for text in texts])), ("label", classifier())]
    )
    scores = cross_val_score(made, np.array(TEXTS), LABELS, cv=2)
    assert scores.shape == (2,)
    assert scores.min() > 0.5
    grid = GridSearchCV(classifier(), {"lr": [1e-6, 1e-2]}, cv=2).fit(np.array(TEXTS), LABELS)
    assert grid.best_params_ == {"lr": 1e-2}
    kept = classifier(out=tmp_path / "run").fit(TEXTS, ["good" if label > 0 else "bad" for label in LABELS])
    assert (tmp_path / "run" / "report.html").is_file()
    assert kept.run_.task.labels == ("bad", "good")


def test_numbers():
    values = [4.5 if label > 0 else 1.5 for label in LABELS]
    found = TextRegressor(architecture=TINY, train=SHORT, lr=1e-2).fit(TEXTS, values)
    given = found.predict(TEXTS)
    assert given.shape == (len(TEXTS),)
    assert given[LABELS > 0].mean() > given[LABELS < 0].mean()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(found)).predict(TEXTS), given)


def test_wrong_data_are_value_errors():
    with pytest.raises(ValueError, match="one class"):
        classifier().fit(TEXTS, [1] * len(TEXTS))
    with pytest.raises(ValueError, match="one value for each text"):
        classifier().fit(TEXTS, LABELS[:-1])
    with pytest.raises(ValueError, match="select the column of the text"):
        classifier().fit(pd.DataFrame({"a": TEXTS, "b": TEXTS}), LABELS)
    with pytest.raises(ValueError, match="Unknown label type"):
        classifier().fit(TEXTS, np.linspace(0, 1, len(TEXTS)))


def told_to_read_tables(kind):
    """scikit-learn checks nothing of an estimator that reads no tables of numbers, so it is told that this one does."""

    class Checked(kind):
        def __sklearn_tags__(self):
            tags = super().__sklearn_tags__()
            tags.input_tags.two_d_array = True
            return tags

    return Checked()


@pytest.mark.parametrize("kind", [TextClassifier, TextRegressor])
def test_scikit_learns_own_checks(kind):
    """Those of parameters, cloning, tags and names pass; those that feed numbers end in our own error, which asks for texts,
    or in scikit-learn's own attempt to take a column of a list of texts."""
    results = check_estimator(told_to_read_tables(kind), on_fail=None, on_skip=None)
    passed = {one["check_name"] for one in results if one["status"] == "passed"}
    assert {"check_estimator_cloneable", "check_no_attributes_set_in_init", "check_estimator_repr"} <= passed
    assert len(passed) > 8
    for one in results:
        if one["status"] == "failed":
            error, reasons = one["exception"], []
            while error is not None:
                reasons.append(str(error))
                error = error.__cause__ or error.__context__
            known = ("a string for each example", "too many indices for array")
            assert any(text in reason for text in known for reason in reasons), (one["check_name"], reasons)
