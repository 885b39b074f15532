"""An ensemble of LightGBM: what trees have in place of a posterior.

Each member is trained on its own bootstrap of the rows. Where the members disagree, they do not know:
the mutual information of label and member is the ensemble's epistemic uncertainty.
"""

import lightgbm
import numpy as np
from scipy.special import entr

MEMBERS = 5
ROUNDS, PATIENCE = 1500, 50


class Ensemble:
    """Boosted trees on bootstraps of the training rows; the rows left out stop each member."""

    def __init__(self, take, y, threads, seed, n_members):
        """take: gives the training rows of given numbers; y [n]: the labels."""
        rng = np.random.default_rng(seed)
        self.classes, self.members = np.unique(y), []
        for number in range(n_members):
            rows = rng.integers(len(y), size=len(y))
            rows = np.concatenate([rows, [np.flatnonzero(y == c)[0] for c in self.classes]])
            out = np.setdiff1d(np.arange(len(y)), rows)
            model = lightgbm.LGBMClassifier(
                n_estimators=ROUNDS, n_jobs=threads, random_state=seed + number, verbosity=-1
            )
            stop = lightgbm.early_stopping(PATIENCE, verbose=False)
            watched = [(take(out), y[out])] if len(out) else None
            model.fit(take(rows), y[rows], eval_set=watched, callbacks=[stop] if watched else None)
            self.members.append(model)

    def probabilities(self, X):
        """Of each member [k, t, C]."""
        return np.stack([member.predict_proba(X) for member in self.members])


def members_of(job):
    """How many members a job asks for."""
    return job.settings.get("members", MEMBERS)


def uncertainty(p):
    """Scores [t] from the members' probabilities [k, t, C]."""
    total = entr(p.mean(axis=0)).sum(axis=1)
    return {"epistemic": total - entr(p).sum(axis=2).mean(axis=0)}
