"""`sib explain`: say where a number comes from, which runs it was computed from, and how to compute these runs again.

sib explain 73.6                     the rows of tables and the claims that show this number
sib explain "73.6 ± 0.2"             the rows and claims that show it with this interval
sib explain few_shot                 a table: each of our numbers with its runs
sib explain few_shot-e80cb7a25e4d    a run: how it was computed, and which numbers it gave
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from sibrepro import claims, documents, paths, tables
from sibrepro.facts import Record, published
from sibrepro.facts.experiment import EXPERIMENTS, STALE
from sibrepro.facts.record import as_dict, experiment_of, todays_name
from sibrepro.study import Table, all_tables, studies

NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?(?:\s*±\s*\d+(?:\.\d+)?)?")
VALUES = {"ours": "ours_ci95", "gain": "ci95", "paper": "paper_ci95"}  # columns of numbers, and of their intervals
LINKS = ("run", "runs")  # columns that name the runs of a row
NO_SETTINGS = {*VALUES, *VALUES.values(), *LINKS, "seeds", "episodes", "tasks_per_second"}  # the other columns are
MOST = 12  # how many places are described in full


@dataclasses.dataclass(frozen=True)
class Place:
    """A place where a number is shown: a row of a table, or a claim.

    Attributes:
        heading: which table and row, or which claim.
        text: the number as it is shown.
        how: how the number follows from its runs.
        runs: the ids of these runs.
        numbers: the numbers in the text. Each is a tuple of the number and, if it has one, its interval.
    """

    heading: str
    text: str
    how: str
    runs: tuple[str, ...]
    numbers: tuple[tuple[float, ...], ...]


def main(options: argparse.Namespace) -> int:
    """Explain a number, a table or a run. Return 1 if there is no such thing."""
    what = todays_name(options.what.strip())
    known = records()
    if what in all_tables():
        print(of_table(what, all_tables()[what]))
        return 0
    if what in known:
        shown = [place for place in places() if what in place.runs]
        print("\n".join([described([known[what]]), *of_places(shown, known)]))
        return 0
    if not NUMBER.fullmatch(what):
        names = ", ".join(all_tables())
        print(f"{what} is not a number, a published run or a table. The tables are {names}")
        return 1
    found = [place for place in places() if shows(place, what)]
    cited = in_texts(what) if found or "±" not in what else []
    if not found and not cited:
        print(f"no published table, claim or document shows {what} (with this number of decimals)")
        return 1
    heading = f"{what} appears in {counted(len(found), 'table row or claim', 'table rows and claims')}"
    if cited:
        heading += f" and {counted(len(cited), 'line of the documents', 'lines of the documents')}"
        cited = ["", *cited]
    print("\n".join([heading, *of_places(found, known), *cited]))
    return 0


def counted(count: int, one: str, several: str) -> str:
    """Return a count with its noun in the right form, such as "2 lines"."""
    return f"{count} {one if count == 1 else several}"


def records() -> dict[str, Record]:
    """Return all published runs by id."""
    studies()  # importing the studies declares their experiments
    return {record.id: record for record in published.everything()}


def places() -> Iterator[Place]:
    """Yield a place for each number in the published tables, and for each claim."""
    for name, table in all_tables().items():
        for number, row in enumerate(table.make().to_dict("records"), start=1):
            yield from of_row(name, table, number, row)
    for part, listed in claims.claims().items():
        for notebook, claim in listed:
            yield Place(
                heading=f"claim of notebook {notebook} ({part}): {claim.claim}",
                text=claim.ours,
                how=f"{claim.verdict}; the paper: {claim.paper}",
                runs=claim.runs,
                numbers=tuple(map(_parsed, NUMBER.findall(claim.ours))),
            )


def _parsed(text: str) -> tuple[float, ...]:
    """Return a number and its interval, if the text has one."""
    return tuple(float(part.replace("−", "-").replace(",", "")) for part in text.split("±"))


def of_row(name: str, table: Table, number: int, row: Mapping[str, Any]) -> Iterator[Place]:
    """Yield a place for each number in a row of a table: ours, and the paper's.

    Args:
        name: the table's name.
        table: its declaration.
        number: the number of the row, from 1.
        row: its cells by column.
    """
    named = [str(row[link]) for link in LINKS if link in row and not pd.isna(row[link])]
    runs = tuple(" ".join(named).replace(STALE, "").split())
    if not runs:
        behind = table.behind(row) if table.behind else table.records()
        runs = tuple(record.id for record in behind)
    for column, ci95 in VALUES.items():
        numbers = tuple(row[name] for name in (column, ci95) if not pd.isna(row.get(name)))
        if pd.isna(row.get(column)):
            continue
        printed = column == "paper"
        yield Place(
            heading=f"{table.title} ({name}.csv, row {number}, column {column}): {setting(row)}",
            text=tables.interval(row[column], row.get(ci95), 2),
            how="printed in the paper" if printed else table.how,
            runs=() if printed else runs,
            numbers=(numbers,),
        )


def setting(row: Mapping[str, Any]) -> str:
    """Return the settings that a row of a table has, as a text."""
    shown = []
    for name, value in row.items():
        if name not in NO_SETTINGS and not pd.isna(value) and value != "":
            shown.append(f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}")
    return ", ".join(shown)


def shows(place: Place, asked: str) -> bool:
    """Tell whether a place has a number that is the one asked for when it is rounded to the same decimals.

    Args:
        place: the place.
        asked: a number, such as "73.6", or a number with its interval, such as "73.6 ± 0.2".
    """
    wanted = [part.strip().replace("−", "-") for part in asked.split("±")]
    for numbers in place.numbers:
        rounded = [_rounded(number, like) for number, like in zip(numbers, wanted, strict=False)]
        if rounded == wanted:
            return True
    return False


def _rounded(number: float, like: str) -> str:
    """Return a number as a text with as many decimals as another text has, and with a plus sign if that has one."""
    sign = "+" if like.startswith("+") else ""
    return f"{number:{sign}.{len(like.partition('.')[2])}f}"


def of_table(name: str, table: Table) -> str:
    """Return every number of ours in a table with its runs, and the command that computes them again."""
    lines = [f"{table.title} (results/tables/{name}.csv)", f"  how    {table.how}"]
    experiments: set[str] = set()
    for number, row in enumerate(table.make().to_dict("records"), start=1):
        for place in of_row(name, table, number, row):
            if place.runs:
                behind = " ".join(place.runs)
                lines.append(f"  row {number:>3}  {place.text:<16} {setting(row)}  <- {behind}")
                experiments.update(map(experiment_of, place.runs))
    lines.append(f"  again  sib verify {' '.join(sorted(experiments))}   (for one run: sib explain RUN)")
    return "\n".join(lines)


def of_places(found: list[Place], known: Mapping[str, Record]) -> list[str]:
    """Return lines about places: the first ones described with their runs, the others named only.

    Args:
        found: the places.
        known: all published runs by id.
    """
    lines = []
    for place in found[:MOST]:
        lines += ["", place.heading, f"  number {place.text}", f"  how    {place.how}"]
        behind = [known[run] for run in place.runs if run in known]
        if behind:
            lines.append(described(behind))
    lines += [f"also: {place.heading}" for place in found[MOST:]]
    return lines


def in_texts(asked: str) -> list[str]:
    """Return where README.md and docs/*.md show a number, each with the words by which docs/numbers.yaml names it."""
    wanted = asked.partition("±")[0].strip()
    lines = []
    for file in filter(Path.is_file, documents.files()):
        text = file.read_text(encoding="utf-8")
        for shown in documents.numbers(file, text):
            if text[shown.start : shown.end] == wanted:
                line = text.count("\n", 0, shown.start) + 1
                lines.append(f"{paths.relative(file)}, line {line}: {shown.what}")
    return lines


def described(runs: list[Record]) -> str:
    """Return how runs were computed, and the command that computes them again. Common parameters are listed once."""
    params = [as_dict(EXPERIMENTS[experiment_of(run.id)].settings_of(run)) for run in runs]
    same = {name: value for name, value in params[0].items() if all(p.get(name) == value for p in params)}
    lines = [f"  runs   {len(runs)}, with {_listed(same)}"]
    data: dict[str, str] = {}
    for run, own in zip(runs, params, strict=True):
        differs = _listed({name: value for name, value in own.items() if name not in same})
        lines.append(f"         {run.id}  {differs or 'as above'}; {_making(run.provenance)}")
        data |= run.provenance.get("data", {})
    lines += [f"  data   {name} sha256 {sha256}" for name, sha256 in sorted(data.items())]
    lines.append(f"  again  sib verify {' '.join(run.id for run in runs)}")
    return "\n".join(lines)


def _making(made: Mapping[str, Any]) -> str:
    """Return the time, machine, versions and commit in a run's provenance as a text."""
    seconds = f"{made['wall_seconds']:.0f} s" if made.get("wall_seconds") else "time unknown"
    versions = made.get("versions") or {}
    kept = ", ".join(f"{name} {versions[name]}" for name in ("python", "torch", "numpy") if name in versions)
    commit = f"commit {str(made.get('commit'))[:8]}"
    code = f", code {made['fingerprint']}" if "fingerprint" in made else ""
    return f"{seconds} on {made.get('processor')} ({made.get('threads')} threads), {kept}, {commit}{code}"


def _listed(values: Mapping[str, Any]) -> str:
    """Return names and values as a text, without those that are empty."""
    return ", ".join(f"{name} = {value}" for name, value in values.items() if value not in ("", None))
