"""The report of a run: every figure and table, in one page that opens offline, and each as a file.

from eqr.report import ReportPlan, write_report
write_report(Path("runs/demo"), ReportPlan())
"""

from eqr.report.run import Written, write_report
from eqr.report.source import ReportPlan, open_source

__all__ = ["ReportPlan", "Written", "open_source", "write_report"]
