"""Model choice by leave-one-out scores."""

from inspect import signature

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import sem
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, DotProduct

from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
from cavity.estimators.selection import compare, compare_kernels, weighted_mean_and_error
from reference import expectation_propagation, fitc_covariance
from support import make, points, signs, table

X, LABELS = table(80)
QUICK = {"optimizer": None, "n_jobs": 1, "random_state": 0, "n_inducing": 10, "tol": 1e-6}


@pytest.fixture(scope="module")
def models():
    kernels = {"smooth": RBF(1.0), "linear": DotProduct(1.0), "rough": RBF(0.05)}
    return {name: make(SEPClassifier, k, **QUICK).fit(X, LABELS) for name, k in kernels.items()}


class TestCompare:
    def test_scores_are_means_over_the_rows(self, models):
        found = compare(models)
        best = models[found.best.name].loo_log_proba_
        assert [c.score for c in found] == sorted((c.score for c in found), reverse=True)
        for c in found:
            loo = models[c.name].loo_log_proba_
            assert_allclose([c.score, c.standard_error], [loo.mean(), sem(loo)])
            assert_allclose([c.behind, c.behind_error], [(best - loo).mean(), sem(best - loo)])
        assert found.best.behind == found.best.behind_error == 0.0
        assert found.n_rows == 80

    def test_weights_are_copies(self, models):
        weight = np.arange(80) % 3
        values = models["smooth"].loo_log_proba_
        copies = np.repeat(values, weight)
        assert_allclose(weighted_mean_and_error(values, weight), (copies.mean(), sem(copies)))
        found = compare(models, sample_weight=weight)
        assert_allclose(found["smooth"].score, copies.mean())
        assert found.n_rows == np.count_nonzero(weight)

    def test_rows_without_a_score_are_left_out_for_all(self, models, monkeypatch):
        holes = models["linear"].loo_log_proba_.copy()
        holes[:30] = np.nan
        monkeypatch.setattr(models["linear"], "loo_log_proba_", holes)
        found = compare(models)
        assert found.n_rows == 50
        assert_allclose(found["smooth"].score, models["smooth"].loo_log_proba_[30:].mean())

    def test_a_sequence_gets_names(self, models):
        other = GFITCClassifier(RBF(2.0), **QUICK).fit(X, LABELS)
        found = compare([models["smooth"], other])
        assert {c.name for c in found} == {"SEPClassifier", "GFITCClassifier"}
        found = compare([models["smooth"], other, models["rough"]])
        assert {c.name for c in found} == {"SEPClassifier 1", "GFITCClassifier", "SEPClassifier 2"}
        assert {c.name for c in compare(list(models.values()))} == {
            f"SEPClassifier {i}" for i in (1, 2, 3)
        }

    def test_reads_as_a_table(self, models):
        found = compare(models)
        assert str(found).splitlines()[1].startswith(found.best.name)
        assert found._repr_html_().count("<tr>") == 4
        assert found[0] == found.best == found[found.best.name]
        assert found.best in found.within_se()
        assert found["rough"] not in found.within_se()
        with pytest.raises(KeyError, match="no candidate 'x'"):
            found["x"]

    def test_refuses_what_cannot_be_compared(self, models):
        with pytest.raises(ValueError, match="different numbers of rows"):
            compare([models["smooth"], make(SEPClassifier, RBF(1.0), **QUICK).fit(X[:40], LABELS[:40])])
        with pytest.raises(NotFittedError):
            compare([SEPClassifier()])
        with pytest.raises(ValueError, match="no models"):
            compare([])
        with pytest.raises(ValueError, match=r"sample_weight has shape \(3,\)"):
            compare(models, sample_weight=[1, 2, 3])


class TestCompareKernels:
    def test_agrees_with_the_fixed_point_of_fitc(self):
        rows, labels, Z = X[:30], LABELS[:30], points(6)
        base = make(SEPClassifier, scaling=None, **{**QUICK, "tol": 1e-10, "max_epochs": 500})
        kernels = {"wide": 1.5 * RBF([0.8, 1.2]), "narrow": RBF(0.5)}
        found = compare_kernels(rows, labels, kernels, inducing_points=Z, estimator=base)
        for name, kernel in kernels.items():
            K, _ = fitc_covariance(kernel, rows, Z, 1e-8)
            oracle = expectation_propagation(K, signs(labels))
            assert_allclose(found[name].score, oracle.log_predictive.mean(), atol=1e-6)
            assert_allclose(found[name].log_evidence, oracle.log_evidence, atol=1e-5)
            assert_array_equal(found[name].kernel.theta, kernel.theta)

    @pytest.mark.parametrize("method", [SEPClassifier, SVIClassifier, GFITCClassifier])
    def test_all_kernels_of_one_m_share_inducing_points(self, method, monkeypatch):
        seen = []
        fit = method.fit

        def watched(self, *args, **kwargs):
            fit(self, *args, **kwargs)
            seen.append(self.inducing_points_)
            return self

        monkeypatch.setattr(method, "fit", watched)
        base = method(inducing_points="greedy", random_state=0, n_jobs=1)
        found = compare_kernels(X, LABELS, [RBF(0.3), RBF(3.0), None], n_inducing=[5, 9], estimator=base)
        assert [len(Z) for Z in seen] == [5, 5, 5, 9, 9, 9]
        for Z in seen[1:3]:
            assert_allclose(Z, seen[0], rtol=1e-12)
        assert len(found) == 6
        assert {c.n_inducing for c in found} == {5, 9}

    def test_more_inducing_points_explain_more(self):
        found = compare_kernels(X, LABELS, {"rbf": RBF(1.0)}, n_inducing=[1, 30])
        assert found.best.name == "rbf, m=30"

    @pytest.mark.skipif(
        "sample_weight" not in signature(SEPClassifier.fit).parameters, reason="no weights yet"
    )
    def test_weights_are_copies(self):
        weight = np.arange(80) % 3
        copies = np.repeat(np.arange(80), weight)
        options = {"kernels": {"rbf": RBF(1.0)}, "inducing_points": points(6)}
        options["estimator"] = make(SEPClassifier, **{**QUICK, "tol": 1e-9})
        weighted = compare_kernels(X, LABELS, sample_weight=weight, **options)
        copied = compare_kernels(X[copies], LABELS[copies], **options)
        assert_allclose(weighted.best[3:], copied.best[3:], rtol=1e-6)

    def test_the_estimator_stays_as_it_was(self):
        base = SEPClassifier(n_inducing=7, random_state=0, n_jobs=1)
        before = base.get_params()
        compare_kernels(X, LABELS, estimator=base)
        assert base.get_params() == before
        assert not hasattr(base, "model_")

    def test_kernels_that_read_alike_stay_apart(self):
        found = compare_kernels(X, LABELS, [RBF(1.0), RBF(1.0001)], n_inducing=5)
        assert {c.name for c in found} == {"RBF(length_scale=1) 1", "RBF(length_scale=1) 2"}

    def test_refusals(self):
        with pytest.raises(ValueError, match="both given"):
            compare_kernels(X, LABELS, n_inducing=3, inducing_points=points(3))
        with pytest.raises(ValueError, match="kernels is empty"):
            compare_kernels(X, LABELS, [])
