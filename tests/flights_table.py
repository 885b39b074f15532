"""A small table with a column of every kind, whose target follows some of them."""

import numpy as np
import pandas as pd


def flights(n=400, seed=0):
    """Hour (some missing), distance, carrier (some missing), date, weekend; delayed: yes or no."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "hour": rng.uniform(0, 24, n).round(2),
            "distance": rng.integers(80, 3_000, n),
            "carrier": rng.choice(["AA", "DL", "UA"], n),
            "date": pd.Timestamp("2013-01-01") + pd.to_timedelta(rng.integers(0, 365, n), unit="D"),
            "weekend": rng.random(n) < 0.3,
        }
    )
    latent = np.sin(frame["hour"] * np.pi / 12) + 1.5 * (frame["carrier"] == "AA") - 0.5
    frame["delayed"] = np.where(latent + 0.3 * rng.standard_normal(n) > 0, "yes", "no")
    frame.loc[rng.random(n) < 0.1, "hour"] = np.nan
    frame.loc[rng.random(n) < 0.1, "carrier"] = None
    return frame
