"""A report of a fitted classifier: one HTML file that needs nothing else; needs `cavity[report]`."""

from cavity.report.write import write_report

__all__ = ["write_report"]
