"""The report: one self-contained page about a run, made from its folder alone. See docs/report.md."""

from sclate.report.page import write_report
from sclate.report.reading import NoRunError, read_run

__all__ = ["NoRunError", "read_run", "write_report"]
