"""The numbers of the README and of docs/ are written by `./run_all.sh publish`, never by hand.

A number in the text is followed by a comment that says what it is, and replaced by what that is now:

    63.3<!--few_shot cifar-fs/conv4-64 SIB 0 1 ours-->     a study, and what its `cite` is told
    0.89<!--elbo_and...-22f711f1a673 largest_ratio-->     a metric of a run

and everything between `<!--claims-->` and `<!--/claims-->` is the table of claims, between `<!--effort-->` and
`<!--/effort-->` that of the time which the published runs took.
"""

from __future__ import annotations

import re
from pathlib import Path

from sibcore.files import write_atomically
from sibrepro import claims, paths
from sibrepro.facts import published
from sibrepro.facts.record import experiment_of
from sibrepro.study import studies

NUMBER = re.compile(r"([-+−\d.]+)<!--([^>]+?)-->")


def write() -> None:
    for path in (file(), cards()):
        write_atomically(path, updated(path.read_text(encoding="utf-8")).encode())


def file() -> Path:
    return paths.root() / "README.md"


def cards() -> Path:
    return paths.root() / "docs" / "cards.md"


def updated(text: str) -> str:
    """The text with the numbers of today's facts."""
    for name, table in {"claims": claims.markdown, "effort": effort}.items():
        block = re.compile(rf"<!--{name}-->.*?<!--/{name}-->", re.S)
        text = block.sub(lambda _: f"<!--{name}-->\n{table()}\n<!--/{name}-->", text)  # noqa: B023, called at once
    return NUMBER.sub(lambda found: f"{_number(found[1], found[2])}<!--{found[2]}-->", text)


def effort() -> str:
    """The hours that published runs took, by experiment."""
    lines = ["| experiment | runs | their time is known | hours | core-hours |", "|---|---:|---:|---:|---:|"]
    totals = [0, 0, 0.0, 0.0]
    for experiment in published.experiments():
        made = [record.provenance for record in published.find(experiment).values()]
        known = [(one["wall_seconds"] / 3600, one.get("threads") or 1) for one in made if one.get("wall_seconds")]
        row = [len(made), len(known), sum(hours for hours, _ in known), sum(hours * n for hours, n in known)]
        totals = [total + value for total, value in zip(totals, row, strict=True)]
        lines.append(f"| {experiment} | {row[0]} | {row[1]} | {row[2]:.2f} | {row[3]:.2f} |")
    return "\n".join([*lines, f"| **all** | {totals[0]} | {totals[1]} | {totals[2]:.2f} | {totals[3]:.2f} |"])


def _number(shown: str, what: str) -> str:
    """Return the value that a comment names, with as many decimals as are shown."""
    first, *words = what.split(" ")
    study = studies().get(first)
    if study and study.cite:
        value = study.cite(*words)
    else:
        value = published.find(experiment_of(first))[first].metrics[words[0]]
    sign = "+" if shown[0] in "+-−" else ""
    return f"{value:{sign}.{len(shown.partition('.')[2])}f}"
