"""Training: pure steps on small frozen states, for the classifiers and for your own training loop.

>>> from sklearn.datasets import make_moons
>>> X, y = make_moons(200, noise=0.2, random_state=0)
>>> with open_rows(X, y) as rows:
...     config = resolve(rows.n_rows, rows.n_classes, n_inducing=10, batch_size=50, max_epochs=5)
...     trainer = prepare_trainer(rows, config)
...     state = trainer.init()
...     for batch in batches(trainer, config):
...         state, info = trainer.step(state, batch)
...     model = finish(trainer, state, config)
>>> len(model.Z)
10
"""

from cavity.inference.candidates import Candidate
from cavity.inference.config import TrainingConfig, resolve
from cavity.inference.history import Iteration, StepInfo, reporting
from cavity.inference.loop import batches
from cavity.inference.optimizers import Adadelta, Adam, Optimizer, SignRates
from cavity.inference.race_records import Race, RaceEntry
from cavity.inference.start import TrainingRows, open_rows, prepare_trainer
from cavity.inference.train import finish, validation_score
from cavity.inference.trainer import Batch, Trainer, TrainingState

__all__ = [
    "Adadelta",
    "Adam",
    "Batch",
    "Candidate",
    "Iteration",
    "Optimizer",
    "Race",
    "RaceEntry",
    "SignRates",
    "StepInfo",
    "Trainer",
    "TrainingConfig",
    "TrainingRows",
    "TrainingState",
    "batches",
    "finish",
    "open_rows",
    "prepare_trainer",
    "reporting",
    "resolve",
    "validation_score",
]
