"""Compares an ONNX file in ONNX Runtime with what `cavity predict` wrote; runs in the fresh environment.

`python onnx_round_trip.py MODEL.onnx ROWS.json PREDICTIONS.csv`: the rows are plain values by column,
dates as days since 1970.
"""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime


def column(kind, cells, onnx_type):
    """A column [n, 1] as a client sends it to the graph."""
    if kind == "text":
        values = np.array([cell or "" for cell in cells], dtype=object)
    elif kind == "date":
        values = np.array(cells, dtype="datetime64[D]").astype("datetime64[us]").astype(np.int64)
    else:
        dtype = np.float64 if "double" in onnx_type else np.float32
        values = np.array([np.nan if cell is None else cell for cell in cells], dtype=dtype)
    return values[:, None]


def main():
    """Exit with a sentence if a probability or a label differs."""
    graph, rows, predictions = (Path(name) for name in sys.argv[1:])
    columns = json.loads(rows.read_text(encoding="utf-8"))
    session = onnxruntime.InferenceSession(graph)
    fed = {one.name: column(*columns[one.name], one.type) for one in session.get_inputs()}
    label, probabilities = session.run(["label", "probabilities"], fed)
    with predictions.open(encoding="utf-8", newline="") as file:
        wanted = list(csv.DictReader(file))
    (name,) = [name for name in wanted[0] if name.startswith("probability_")]
    expected = np.array([float(row[name]) for row in wanted])
    distance = np.abs(probabilities[:, 1] - expected).max()
    if distance > 1e-5 or label.ravel().tolist() != [row["label"] for row in wanted]:
        sys.exit(f"ONNX Runtime and cavity differ: {distance:.2g} in probability")
    print(f"{len(wanted)} rows agree with ONNX Runtime to {distance:.1e}")


if __name__ == "__main__":
    main()
