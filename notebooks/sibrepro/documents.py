"""The numbers in README.md and docs/*.md: written by `./run_all.sh publish`, typed by nobody.

`docs/numbers.yaml` lists the phrases with numbers of each document. A phrase is the text as the document has it, with
braces where a number stands:

    README.md:
    - "accuracy rises from {few_shot ours dataset=cifar-fs backbone=conv4-64 method=SIB K=0 shots=1:.1f} %"
    - "{pretrain-33055be948f5 validation:.1f} % on validation classes"

Braces hold the name of a published table, one of its columns and what tells the row, or the id of a run, one of its
metrics, and "percent" if the metric is a share. What follows the colon is Python's format of the number.

Four tables are written as a whole, between comments such as `<!--headline-->` and `<!--/headline-->`: the headline
claims, the computing time of all published runs ("effort"), what the whole paper would cost ("cost"), and the trained
SIBs ("models").
"""

from __future__ import annotations

import functools
import operator
import re
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import yaml

from sibcore import zoo
from sibcore.files import write_atomically
from sibrepro import claims, paths
from sibrepro.facts import Record, published
from sibrepro.facts.record import experiment_of
from sibrepro.study import all_tables

BLOCK = re.compile(r"<!--(headline|effort|cost|models)-->.*?<!--/\1-->", re.DOTALL)
HOLE = re.compile(r"\{([^{}:]+):([^{}]+)\}")  # in a phrase: what the number is, and its format
# how the stages of results/tables/sizing.csv are put together in the documents
KINDS = {
    "^pretraining .*": "pretraining, 3 networks × 2 image sets",
    "^features .*": "features",
    "^(meta-training|evaluation), (.*)": r"meta-training and evaluation, \2",
}
DIGITS = r"[-+−]?\d[\d,]*(?:\.\d+)?%?"  # any number in a text


def write() -> None:
    """Update all documents."""
    for path in files():
        write_atomically(path, updated(path).encode())


def files() -> list[Path]:
    """Return the paths of README.md and of the documents in docs/."""
    return [paths.root() / "README.md", *sorted((paths.root() / "docs").glob("*.md"))]


def updated(path: Path) -> str:
    """Return the text of a document with the numbers and tables of the present facts.

    Raise a ValueError if a phrase does not stand in the document exactly once.
    """
    text = path.read_text(encoding="utf-8")
    tables = {"headline": claims.headline, "effort": effort, "cost": cost, "models": models}
    text = BLOCK.sub(lambda found: f"<!--{found[1]}-->\n{tables[found[1]]()}\n<!--/{found[1]}-->", text)
    for shown in sorted(numbers(path, text), key=lambda shown: -shown.start):  # from the end, so that places stay valid
        text = text[: shown.start] + shown.present + text[shown.end :]
    return text


class Shown(NamedTuple):
    """A number that a document shows.

    Attributes:
        what: the words in the braces of its phrase.
        start, end: its place in the text.
        present: its text as it should be.
    """

    what: str
    start: int
    end: int
    present: str


def numbers(path: Path, text: str) -> list[Shown]:
    """Return the numbers in a document that phrases name. Raise a ValueError if a phrase is not there exactly once."""
    found = []
    for phrase in _all_phrases().get(paths.relative(path), []):
        matches = list(pattern(phrase).finditer(text))
        if len(matches) != 1:
            raise ValueError(
                f"{paths.relative(path)} has the phrase {phrase!r} {len(matches)} times: "
                "expected once; change docs/numbers.yaml or the document so that they agree"
            )
        for group, hole in enumerate(HOLE.finditer(phrase), start=1):
            present = format(value(hole[1]), hole[2]).replace("-", "−")
            found.append(Shown(hole[1], *matches[0].span(group), present))
    return found


def pattern(phrase: str) -> re.Pattern[str]:
    """Return the pattern of a phrase in a text: any number may stand in the braces, any white space between words."""
    pieces = [r"\s+".join(map(re.escape, piece.split(" "))) for piece in HOLE.split(phrase)[::3]]
    return re.compile(f"({DIGITS})".join(pieces))


@functools.cache
def value(what: str) -> float:
    """Return the present value of a number, or raise a ValueError if there is no such number.

    Args:
        what: the words in the braces of a phrase.
    """
    name, column, *conditions = shlex.split(what)
    if name not in all_tables():
        record = published.find(experiment_of(name)).get(name)
        if record is None or column not in record.metrics:
            raise ValueError(f"docs/numbers.yaml: {what!r} names no published table, and no metric of a published run")
        return record.metrics[column] * (100 if conditions == ["percent"] else 1)
    rows = _table(name)
    for condition in conditions:
        key, _, wanted = condition.partition("=")
        rows = rows[rows[key].astype(str).str.removesuffix(".0") == wanted]
    if len(rows) != 1:
        raise ValueError(f"docs/numbers.yaml: {what!r} fits {len(rows)} rows of the table: expected one")
    return float(rows[column].iloc[0])


@functools.cache
def _table(name: str) -> pd.DataFrame:
    """Return the rows of a published table that have a number of ours."""
    table = all_tables()[name].make()
    return table.dropna(subset="ours") if "ours" in table else table


def effort() -> str:
    """Return a Markdown table of the hours that published runs took, by experiment."""
    lines = ["| experiment | runs | runs with known time | hours | core-hours |", "|---|---:|---:|---:|---:|"]
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


def models() -> str:
    """Return a Markdown table of the trained SIBs, from their cards."""
    lines = ["| SIB | ways | shots | features of | accuracy |", "|---|---|---|---|---|"]
    for card in zoo.cards().values():
        if card.ways:
            features = "any network" if card.ways == "any" else f"`{card.network}`"
            accuracy = f"{card.accuracy:.1f} ± {card.interval:.1f} % {card.tested_on}"
            lines.append(f"| `{card.name}` | {card.ways} | {card.shots} | {features} | {accuracy} |")
    return "\n".join(lines)


def cost() -> str:
    """Return a Markdown table of what the whole paper would take, by kind of stage, from `benchmarks/sizing.py`."""
    columns = ["runs", "PFLOP", "CPU core-hours (measured rate)", "GPU-hours (estimate)"]
    stages = pd.read_csv(paths.published() / "tables" / "sizing.csv")
    kinds = stages["stage"].replace(KINDS, regex=True)
    sums = stages.assign(runs=stages["runs"].where(~stages["stage"].str.startswith("evaluation"), 0))
    sums = sums.groupby(kinds, sort=False)[columns].sum()
    sums.loc["**all**"] = sums.sum()
    lines = [f"| {' | '.join(['stage', *columns])} |", "|---|---:|---:|---:|---:|"]
    for kind, row in sums.iterrows():
        numbers = [f"{number:,.0f}" if number >= 100 else f"{number:.2g}" for number in row[1:]]
        lines.append(f"| {kind} | {row.iloc[0]:.0f} | {' | '.join(numbers)} |")
    return "\n".join(lines)


@functools.cache
def _all_phrases() -> dict[str, list[str]]:
    """Return the content of docs/numbers.yaml."""
    return yaml.safe_load((paths.root() / "docs" / "numbers.yaml").read_text(encoding="utf-8")) or {}
