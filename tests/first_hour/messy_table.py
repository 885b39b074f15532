"""A table as people have it: decimal commas, words among numbers, dates, identifiers, gaps.

The same rows are also known as plain values, so that programs can be compared on them.
"""

import csv
import io
import math
import random
from datetime import date, timedelta

TARGET, IDENTIFIER = "late", "order"
COLUMNS = {"ordered": "date", "amount": "number", "weight": "number", "town": "text", "fragile": "flag"}
"""Names of the columns that tell something, and what they hold."""
_NO_WEIGHT = ("", "-", "n/a", "unknown")
_TOWNS = ("Köln", "Zürich", "Bern", "Genève")


def orders(n, seed):
    """Plain rows: identifier, date, numbers, text, truth value, label; None is a missing cell."""
    rng = random.Random(seed)
    rows = []
    for i in range(n):
        weight, town = round(rng.uniform(0.1, 12.0), 2), rng.choice(_TOWNS)
        score = 2.0 * math.sin(weight / 2.0) + 1.5 * (town == "Bern") - 1.2 + rng.gauss(0.0, 0.5)
        rows.append(
            {
                IDENTIFIER: f"R{seed}-{i:05d}",
                "ordered": date(2025, 1, 1) + timedelta(days=rng.randrange(365)),
                "amount": round(math.exp(rng.gauss(6.0, 1.5)), 2),
                "weight": None if rng.random() < 0.08 else weight,
                "town": None if rng.random() < 0.05 else town,
                "fragile": rng.random() < 0.3,
                TARGET: "yes" if score > 0.0 else "no",
            }
        )
    return rows


def as_text(rows):
    """These rows as a CSV file in Windows-1252, with cells as people and spreadsheets write them."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter=";", lineterminator="\r\n")
    writer.writerow(rows[0])
    for i, row in enumerate(rows):
        writer.writerow(
            [
                row[IDENTIFIER],
                row["ordered"].strftime("%d.%m.%Y"),
                _with_comma(row["amount"]) + " €",
                _NO_WEIGHT[i % 4] if row["weight"] is None else _with_comma(row["weight"]),
                row["town"] or "",
                str(row["fragile"]).upper(),
                row[TARGET] + " " * (i % 7 == 0),  # blanks that nobody sees
            ]
        )
    return stream.getvalue().encode("cp1252")


def _with_comma(value):
    """A number with a decimal comma and points between thousands.

    >>> _with_comma(12345.5)
    '12.345,50'
    """
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))
