"""Write the numbers of the README and of docs/cards.md, for `./run_all.sh publish`. Nobody types them by hand.

A comment after a number says what the number is, and `publish` replaces the number by its present value:

    63.3<!--few_shot cifar-fs/conv4-64 SIB 0 1 ours-->     the name of a study, and the arguments of its `cite`
    0.89<!--elbo_and...-22f711f1a673 largest_ratio-->     the id of a run, and one of its metrics

The text between `<!--claims-->` and `<!--/claims-->` is replaced by the table of claims. The text between
`<!--effort-->` and `<!--/effort-->` is replaced by a table of how long the published runs took.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Collection
from pathlib import Path

from sibcore.files import write_atomically
from sibrepro import claims, paths
from sibrepro.facts import Record, published
from sibrepro.facts.record import experiment_of
from sibrepro.study import studies

BLOCK = re.compile(r"<!--(claims|effort)-->.*?<!--/\1-->", re.DOTALL)
NUMBER = re.compile(r"([-+−\d.]+)<!--([^>]+?)-->")


def write() -> None:
    """Update both files."""
    for path in (file(), cards()):
        write_atomically(path, updated(path.read_text(encoding="utf-8")).encode())


def file() -> Path:
    """Return the path of the README."""
    return paths.root() / "README.md"


def cards() -> Path:
    """Return the path of the data and model cards."""
    return paths.root() / "docs" / "cards.md"


def updated(text: str) -> str:
    """Return the text with the numbers and tables of the present facts."""
    tables = {"claims": claims.markdown, "effort": effort}

    def block(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!--{name}-->\n{tables[name]()}\n<!--/{name}-->"

    text = BLOCK.sub(block, text)
    return NUMBER.sub(lambda found: f"{_number(found[1], found[2])}<!--{found[2]}-->", text)


def effort() -> str:
    """Return a Markdown table of the hours that published runs took, by experiment."""
    lines = ["| experiment | runs | their time is known | hours | core-hours |", "|---|---:|---:|---:|---:|"]
    lines += [_effort_row(experiment, published.find(experiment).values()) for experiment in published.experiments()]
    lines.append(_effort_row("**all**", published.everything()))
    return "\n".join(lines)


def _effort_row(name: str, records: Collection[Record]) -> str:
    """Return a row of the table: the number of runs, how many of them say how long they took, and these hours."""
    timed = [record.provenance for record in records if record.provenance.get("wall_seconds")]
    hours = [made["wall_seconds"] / 3600 for made in timed]
    threads = [made.get("threads") or 1 for made in timed]
    core_hours = sum(map(operator.mul, hours, threads))
    counts = f"{len(records)} | {len(timed)}"
    return f"| {name} | {counts} | {sum(hours):.2f} | {core_hours:.2f} |"


def _number(shown: str, what: str) -> str:
    """Return the present value of what a comment names, with as many decimals as the text shows.

    Args:
        shown: the number in the text.
        what: the words of the comment.
    """
    first, *words = what.split(" ")
    study = studies().get(first)
    if study and study.cite:
        value = study.cite(*words)
    else:
        value = published.find(experiment_of(first))[first].metrics[words[0]]
    sign = "+" if shown[0] in "+-−" else ""
    return f"{value:{sign}.{len(shown.partition('.')[2])}f}"
