"""Reports of studies: tables beside the published ones, figures, tests and floors on one page."""

from clew.lab.studies.report.edition import Edition, read_edition
from clew.lab.studies.report.make import Report, make_report

__all__ = ["Edition", "Report", "make_report", "read_edition"]
