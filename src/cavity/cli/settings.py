"""What holds for the whole run of a command."""

from __future__ import annotations

debug = False
"""Whether tracebacks are shown."""
quiet = False
"""Whether progress is not shown."""
