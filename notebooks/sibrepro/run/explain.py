"""Where a number comes from: every place where it stands, the runs behind it, and the command that computes them again.

sib explain 73.6                     the tables and claims that show this number
sib explain "73.6 ± 0.2"             likewise, with its interval
sib explain few_shot                 a table: every number of ours in it, and the runs of each
sib explain few_shot-e80cb7a25e4d    a run: how it was made, and where its numbers stand
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from sibrepro import claims, paths, readme, tables
from sibrepro.facts import Record, published
from sibrepro.facts.experiment import EXPERIMENTS, STALE
from sibrepro.facts.record import as_dict, experiment_of
from sibrepro.study import Table, all_tables, studies

NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?(?:\s*±\s*\d+(?:\.\d+)?)?")
VALUES = {"ours": "ours_ci95", "gain": "ci95", "paper": "paper_ci95"}  # columns of numbers, and of their intervals
LINKS = ("run", "runs")  # columns that name the runs behind a row
MOST = 12  # places that are told in full


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a number stands: a heading, how it follows from its runs, and these."""

    heading: str
    text: str
    how: str
    runs: tuple[str, ...]
    numbers: tuple[tuple[float, ...], ...]  # each perhaps with its interval


def main(options: argparse.Namespace) -> int:
    """`sib explain`: 1 if there is nothing of that name, or no such number."""
    what = options.what.strip()
    known = records()
    if what in all_tables():
        print(of_table(what, all_tables()[what]))
        return 0
    if what in known:
        print("\n".join([described([known[what]]), *of_places([p for p in places() if what in p.runs], known)]))
        return 0
    if not NUMBER.fullmatch(what):
        names = ", ".join(all_tables())
        print(f"{what} is no number, no published run and no table; the tables are {names}")
        return 1
    found = [place for place in places() if shows(place, what)]
    cited = in_texts(what) if found or "±" not in what else []
    if not found and not cited:
        print(f"{what} stands in no published table, no claim and no text, as far as they are rounded like this")
        return 1
    heading = f"{what} stands in {counted(len(found), 'table row or claim', 'table rows and claims')}"
    if cited:
        heading += f" and {counted(len(cited), 'line of the texts', 'lines of the texts')}"
    print("\n".join([heading, *of_places(found, known), *(["", *cited] if cited else [])]))
    return 0


def counted(count: int, one: str, several: str) -> str:
    """Return a count with its noun, such as "2 lines"."""
    return f"{count} {one if count == 1 else several}"


def records() -> dict[str, Record]:
    """Return all published runs by id."""
    studies()  # declares the experiments
    return {record.id: record for record in published.everything()}


def places() -> Iterator[Place]:
    """Yield every number of ours in the published tables and in the claims."""
    for name, table in all_tables().items():
        frame = table.make()
        for number, row in enumerate(frame.to_dict("records"), start=1):
            yield from of_row(name, table, number, row)
    for part, listed in claims.claims().items():
        for notebook, claim in listed:
            heading = f"claim of notebook {notebook} ({part}): {claim.claim}"
            how = f"{claim.verdict}; the paper: {claim.paper}"
            yield Place(heading, claim.ours, how, claim.runs, tuple(map(_parsed, NUMBER.findall(claim.ours))))


def _parsed(text: str) -> tuple[float, ...]:
    return tuple(float(part.replace("−", "-").replace(",", "")) for part in text.split("±"))


def of_row(name: str, table: Table, number: int, row: Mapping[str, Any]) -> Iterator[Place]:
    """Yield the numbers in a row of a table: ours, or the paper's where nothing is measured."""
    named = [str(row[link]) for link in LINKS if link in row and not pd.isna(row[link])]
    runs = tuple(" ".join(named).replace(STALE, "").split())
    if not runs:
        runs = tuple(record.id for record in (table.behind(row) if table.behind else table.records()))
    for column, ci95 in VALUES.items():
        value = row.get(column)
        if value is None or pd.isna(value):
            continue
        half = row.get(ci95)
        numbers = (value,) if half is None or pd.isna(half) else (value, half)
        ours = column != "paper"
        how = table.how if ours else "printed in the paper"
        heading = f"{table.title} ({name}.csv, row {number}, column {column}): {setting(row)}"
        yield Place(heading, tables.interval(value, half, 2), how, runs if ours else (), (numbers,))


def setting(row: Mapping[str, Any]) -> str:
    """Return what a row of a table is about, in a line."""
    left_out = {*VALUES, *VALUES.values(), *LINKS, "seeds", "episodes", "tasks_per_second"}
    shown = {n: v for n, v in row.items() if n not in left_out and not pd.isna(v) and v != ""}
    return ", ".join(
        f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}" for name, value in shown.items()
    )


def shows(place: Place, asked: str) -> bool:
    """Tell whether the number that is asked for, such as "73.6" or "73.6 ± 0.2", is one of a place's, rounded so."""
    wanted = [part.strip().replace("−", "-") for part in asked.split("±")]
    return any(
        len(numbers) >= len(wanted) and all(_rounded(n, text) == text for n, text in zip(numbers, wanted, strict=False))
        for numbers in place.numbers
    )


def _rounded(number: float, like: str) -> str:
    """Return a number with as many decimals, and a sign if it has one, as a text."""
    sign = "+" if like.startswith("+") else ""
    return f"{number:{sign}.{len(like.partition('.')[2])}f}"


def of_table(name: str, table: Table) -> str:
    """Return every number of ours in a table, with its runs, and the command that computes them again."""
    frame = table.make()
    lines = [f"{table.title} (results/tables/{name}.csv)", f"  how    {table.how}"]
    experiments: set[str] = set()
    for number, row in enumerate(frame.to_dict("records"), start=1):
        for place in of_row(name, table, number, row):
            if place.runs:
                lines.append(f"  row {number:>3}  {place.text:<16} {setting(row)}  <- {' '.join(place.runs)}")
                experiments |= {experiment_of(run) for run in place.runs}
    lines.append(f"  again  sib verify {' '.join(sorted(experiments))}   (and sib explain RUN for one of them)")
    return "\n".join(lines)


def of_places(found: list[Place], known: Mapping[str, Record]) -> list[str]:
    """Return what is told of places: in full of the first, a line of the others."""
    lines = []
    for place in found[:MOST]:
        behind = [known[run] for run in place.runs if run in known]
        lines += ["", place.heading, f"  number {place.text}", f"  how    {place.how}"]
        lines += [described(behind)] if behind else []
    return [*lines, *(f"and {place.heading}" for place in found[MOST:])]


def in_texts(asked: str) -> list[str]:
    """Return where the README and the documents show the number, with the words of the comment that names it there."""
    wanted = asked.partition("±")[0].strip()
    lines = []
    for file in filter(Path.is_file, (readme.file(), readme.cards())):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            names = [name for shown, name in readme.NUMBER.findall(line) if shown == wanted]
            lines += [f"{paths.relative(file)}, line {number}: {name}" for name in names]
    return lines


def described(runs: list[Record]) -> str:
    """Return how runs were made, and the command that makes them again."""
    params = [{**as_dict(EXPERIMENTS[experiment_of(run.id)].settings_of(run))} for run in runs]
    same = {name: value for name, value in params[0].items() if all(p.get(name) == value for p in params)}
    lines = [f"  runs   {len(runs)}, with {_listed(same)}"]
    for run, own in zip(runs, params, strict=True):
        made = run.provenance
        differs = _listed({name: value for name, value in own.items() if name not in same})
        lines.append(f"         {run.id}  {differs or 'as above'}; {_making(made)}")
    data = dict(item for run in runs for item in run.provenance.get("data", {}).items())
    lines += [f"  data   {name} sha256 {sha256}" for name, sha256 in sorted(data.items())]
    return "\n".join([*lines, f"  again  sib verify {' '.join(run.id for run in runs)}"])


def _making(made: Mapping[str, Any]) -> str:
    """Return seconds, machine, versions and commit of a run, in a line."""
    seconds = f"{made['wall_seconds']:.0f} s" if made.get("wall_seconds") else "time unknown"
    versions = made.get("versions") or {}
    kept = ", ".join(f"{name} {versions[name]}" for name in ("python", "torch", "numpy") if name in versions)
    commit = f"commit {str(made.get('commit'))[:8]}"
    code = f", code {made['fingerprint']}" if "fingerprint" in made else ""
    return f"{seconds} on {made.get('processor')} ({made.get('threads')} threads), {kept}, {commit}{code}"


def _listed(values: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in dict(values).items() if value not in ("", None))
