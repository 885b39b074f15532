"""Reports on fitted classifiers, as one HTML file each; needs `cavity[report]`."""

from cavity.report.write import check_path, write_report

__all__ = ["check_path", "write_report"]
