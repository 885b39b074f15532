"""`cavity report`."""

from __future__ import annotations

from typing import Any

from cavity.cli.bar import progress_shown
from cavity.cli.guard import CommandError, say
from cavity.cli.models import loaded_model
from cavity.cli.outputs import checked_output, print_json

MOST_ROWS = 200_000
"""Rows of a table that a report is made of; from more, evenly spaced ones are taken."""
