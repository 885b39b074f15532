"""Reports on fitted classifiers, as one HTML file each; needs `cavity[report]`."""

from cavity.report.write import write_report

__all__ = ["write_report"]
