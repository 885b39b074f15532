"""Scalable expectation propagation as a scikit-learn classifier."""

from __future__ import annotations

from typing import ClassVar

from cavity.estimators.trained import TrainedGPClassifier


class SEPClassifier(TrainedGPClassifier):
    """Gaussian process classifier by scalable expectation propagation (SEP).

    Here SEP means *scalable* EP (Hernández-Lobato & Hernández-Lobato, 2015), not stochastic EP.
    A sparse Gaussian process with learned inducing points; every step refines the Gaussian factors of
    rows and moves kernel and inducing points, from one pass over those rows.

    Parameters
    ----------
    kernel : scikit-learn kernel or None
        Any composition of ConstantKernel, WhiteKernel, RBF, Matern, RationalQuadratic, DotProduct, +, *
        and **, or a kernel registered with `cavity.gp.kernels.register`. It acts on the scaled inputs.
        None is an amplitude (bounded at 30) times an ARD Matérn 3/2, RBF or Matérn 1/2, whose
        lengthscales start at the median distance between rows; held-out rows choose.
    likelihood : {"probit", "logit"}
        Probability of a label given the latent function: Φ(yf), in closed form, or 1/(1 + exp(−yf)). For
        three classes or more, only "probit": the largest of C latent functions, each with unit noise.
    mean_function : None, "linear" or a scikit-learn classifier
        What the Gaussian process is added to in the latent function: the classifier's score of a row
        (its log-odds) times a coefficient that is learned. Training rows have cross-fitted scores, and
        the classifier of the predictions is fitted to all rows. "linear" is logistic regression on the
        scaled inputs.
    n_inducing : int or "auto"
        Number m of inducing points; at most the number of different rows. With "auto", held-out rows
        choose 200 or more; it is 100 if no rows are held out, and 20 with leaves.
    inducing_points : {"kmeans", "random", "greedy"} or array-like [m, d]
        Where inducing points start: cluster centres, random rows, the rows of greatest conditional
        variance, or the given points in the units of X, which override n_inducing.
    leaves : int, "auto", fitted estimator, array-like [n] or None
        Leaves of the input space with inducing points of their own, 100 each (the field `n_local` of
        `config`), besides n_inducing for all rows: more capacity for many rows at the price of one leaf.
        A number is that of the leaves of a decision tree, learned on the labels. An estimator says by
        `apply` or `predict` which leaf a row is in. Leaf numbers or names of your own, one for each
        training row, are learned by a tree, which then says where all rows are. With "auto" and rows
        enough for two leaves, held-out rows choose whether there are leaves, how many, and their points,
        if n_inducing is "auto" and kernel None; else, and on a cluster, there are none. None has no
        leaves.
    scaling : {"auto", "standard", "robust", "quantile", "whiten"} or None
        How inputs are scaled. "standard": each feature centred and scaled by its standard deviation.
        "robust": by median and interquartile range, with large values drawn in, so that no outlier
        decides the scale. "quantile": to the normal quantiles of its ranks. "whiten": standardised, then
        decorrelated by a Cholesky factor (`kernel_` then has one lengthscale for each decorrelated
        feature). None: not at all. With "auto", held-out rows choose one of the first three; it is
        "robust" if no rows are held out, and "standard" with a kernel of your own.
    batch_size : int, "auto" or None
        Rows that a step sees. None is all of them; "auto" is 5m, or 1,000 or a thousandth of all rows if
        that is more, at most 20m, and all rows if there are no more. `partial_fit` learns as
        many rows of a chunk at a time as this number says, else 5m, at least 1,000.
    optimizer : "adam", an optimiser object or None
        How kernel and inducing points move. An object such as `cavity.inference.Adam(0.01)` sets the
        learning rate; "adam" chooses it. None keeps kernel and inducing points and runs EP to
        convergence.
    max_epochs, max_seconds : float or None
        Budget in passes over the data and in seconds; whichever ends first. Steps shrink in its second
        half. With max_seconds the result depends on the clock. Without either, training takes at most
        200 steps on all rows, or 3,000 minibatches, and two to 400 epochs.
    validation_fraction : float, "auto" or None
        Share of the rows (at most 20,000) that are held out of training. They decide what "auto" means,
        keep the best state and calibrate the predictions. "auto" is 10 %, at least 500 rows, and none of
        fewer than 2,000, which leave-one-out scores calibrate; a number also ends training early. None
        holds out none and calibrates nothing.
    class_weight : dict, "balanced" or None
        Factors on the weights of the rows of each class, by class value (1 for those not listed).
        "balanced" gives every class the same total weight. They change the prior odds, and so the
        probabilities.
    config : dict, `cavity.inference.TrainingConfig` or None
        A dict sets further fields of the configuration, for instance ``{"damping": 0.3}``. A whole
        configuration, such as `config_` of another fit, decides everything.
    warm_start : bool
        Whether fit goes on from the last fit's kernel, inducing points and posterior.
    window_size : float or None
        About how many of the latest rows `partial_fit` remembers. None counts every row alike.
    checkpoint : path or None
        File to which training is saved, and from which the same call resumes a fit that was killed.
    random_state, n_jobs, verbose
        As in scikit-learn; n_jobs=None uses all cores, and verbose=1 shows a bar in a notebook.

    Attributes
    ----------
    classes_ : array [C]
    config_ : `cavity.inference.TrainingConfig`
        Every setting of the fit, with what "auto" meant.
    kernel_ : the fitted kernel, on scaled inputs; with leaves, the sum of that for all rows and that of
        the leaves
    inducing_points_ : array [m, d], those for all rows, in the units of X
    log_marginal_likelihood_value_ : float
        log Z_q of all rows; NaN after `partial_fit`, whose rows are gone, and if a budget (of seconds,
        or of one sweep with optimizer=None) left no time for the exact sweeps that it needs.
    loo_log_proba_ : array [n]
        Log probability of each training label with its row left out, from the cavities; NaN for rows
        that were not visited, and for rows of weight 0.
    loo_log_loss_ : float
        Minus their weighted mean.
    inverse_temperature_ : float
        The factor on the latent functions that calibration has found; 1 without calibration.
    residual_variance_scale_ : float
        The factor of predictions on the residual variance, which the inducing points leave unexplained;
        1 without calibration.
    validation_log_loss_, validation_standard_error_ : float
        Mean negative log probability of the held-out labels, and its standard error; NaN without any.
    n_validation_rows_ : int
    race_ : `cavity.inference.Race` or None
        The configurations that were tried, with their scores on the held-out rows and their seconds.
    mean_function_ : the fitted classifier of the mean function, or None
    mean_coefficient_ : float
        The factor on its scores; 0 without a mean function.
    n_iter_ : int, steps taken
    fit_seconds_ : float
    history_ : list of `cavity.inference.Iteration`
    model_ : `cavity.gp.model.Model`
    relevance_ : `cavity.gp.relevance.Relevance`, how much each feature matters, with a 90 % band
    feature_importances_ : array [d], the shares of `relevance_`
    n_features_in_, feature_names_in_ : as in scikit-learn

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = SEPClassifier(n_inducing=20, random_state=0).fit(X, y)
    >>> print(f"{model.score(X, y):.1f}")
    1.0
    """

    _method: ClassVar[str] = "ep"
    _method_in_words: ClassVar[str] = "scalable expectation propagation (SEP)"
