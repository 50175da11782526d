"""The report: a static site of what was claimed, what was measured and where it comes from.

`build()` writes `results/local/report/`: a front page, a page for each notebook and each table, one of all runs,
and the reference of `sibcore`.
They have no script and load nothing from elsewhere, so they work from `file://` and can be copied as a folder.
"""

from sibrepro.site.site import build

__all__ = ["build"]
