"""Runs exported models."""

import numpy as np
import onnxruntime


def run(exported, rows, name="X", dtype=np.float32):
    """Outputs by name for rows [n, d] given as one matrix."""
    return run_columns(exported, {name: np.asarray(rows, dtype=dtype)})


def run_columns(exported, columns):
    """Outputs by name for named inputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(exported.SerializeToString(), options)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, columns), strict=True))
