"""What holds for the whole run of a command."""

debug = False
"""Whether tracebacks are shown."""
quiet = False
"""Whether progress is not shown."""
