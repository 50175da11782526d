"""From a command to its points, what is there of them already, and running the rest."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections import Counter
from pathlib import Path

from sibrepro import paths
from sibrepro.run import pipeline
from sibrepro.run.sweep import cluster, grid, local, table
from sibrepro.run.sweep.attempt import Limits, cores
from sibrepro.run.sweep.point import Point, Result, folder, read_results
from sibrepro.run.sweep.progress import Progress


@dataclasses.dataclass(frozen=True)
class Plan:
    sweep: str
    points: list[Point]
    there: dict[str, Result]  # by key: what is done or failed already
    todo: list[Point]

    @property
    def skipped(self) -> list[Result]:
        kept = {point.key for point in self.points} - {point.key for point in self.todo}
        return [result for key, result in self.there.items() if key in kept]


def make(options: argparse.Namespace) -> Plan:
    """Read the notebook and the grid; every point is checked here, before anything runs."""
    notebook = grid.Notebook.read(options.notebook)
    sweep = options.name or notebook.name
    if not re.fullmatch(r"\w[\w.-]*", sweep):
        raise ValueError(f"--name {sweep}: expected letters, digits, `-`, `_` and `.`, for it names a folder")
    profile = pipeline.profile_parameters(notebook.name, options.profile) if options.profile else {}
    fixed = {name: grid.parse(value, f"-p {name} {value}") for name, value in options.parameter}
    fingerprint = pipeline.Job(options.notebook, "", {}).fingerprint()
    every = [
        Point(sweep, notebook, notebook.conform(profile | grid.union([fixed, varied])), tuple(varied), fingerprint)
        for varied in grid.points(options.grid, options.file, options.zip)
    ]
    points = list({point.key: point for point in every}.values())
    results = read_results(folder(sweep))
    other = next((r.notebook for r in results if r.notebook not in ("", notebook.name)), None)
    if other:
        raise ValueError(f"{paths.relative(folder(sweep))} holds points of {other}: choose another --name")
    there = {result.key: result for result in results}
    again = {"failed", "done"} if options.redo else {"failed"} if options.retry_failed else set()
    todo = [point for point in points if point.key not in there or there[point.key].status in again]
    return Plan(sweep, points, there, todo)


def run(options: argparse.Namespace) -> int:
    plan = make(options)
    processes = max(min(options.processes or cores(), len(plan.todo)), 1)
    limits = Limits(options.threads or max(cores() // processes, 1), options.timeout)
    _say_what_is_there(plan)
    if options.dry_run:
        print(f"would run {len(plan.todo)} points, {processes} at a time with {limits.threads} threads each")
        for point in plan.points:
            there = plan.there.get(point.key)
            print(f"  {'run' if point in plan.todo else there.status:<8} {point.name}")
        return 0
    _forget([point for point in plan.todo if point.key in plan.there])
    status = Counter(result.status for result in plan.skipped)
    progress = Progress(plan.sweep, len(plan.points), processes, status["done"], status["failed"])
    try:
        if options.dask:
            share = options.threads is None
            cluster.run(plan.todo, paths.output(), options.dask, processes, limits, share, progress)
        else:
            local.run(plan.todo, paths.output(), processes, limits, progress)
    finally:
        progress.close()
    return _summary(plan)


def _say_what_is_there(plan: Plan) -> None:
    stale = [r for r in plan.skipped if r.fingerprint not in (None, plan.points[0].fingerprint)]
    if stale:
        print(f"{len(stale)} points were made by other cells or code than now; --redo runs them again")
    failed = [result for result in plan.skipped if result.error]
    if failed:
        print(f"{len(failed)} points failed before and stay so; --retry-failed runs them again")


def _forget(points: list[Point]) -> None:
    """Remove what is left of points that are to run again, the result last."""
    for point in points:
        files = point.files(paths.output())
        files.executed.unlink(missing_ok=True)
        files.result.unlink(missing_ok=True)


def _summary(plan: Plan) -> int:
    place = folder(plan.sweep)
    rows = table.write(place)
    asked = {point.key for point in plan.points}
    failed = [result for result in read_results(place) if result.error and result.key in asked]
    print(f"\n{len(rows)} rows in {paths.relative(place)}/table.csv and table.parquet")
    for result in failed:
        print(f"FAILED: {result.point}\n  {result.error}\n  as executed: {_trace(place, result)}")
    return 1 if failed else 0


def _trace(place: Path, result: Result) -> str:
    files = [place / f"{result.point}{ending}" for ending in (".ipynb", ".log")]
    return paths.relative(next((file for file in files if file.is_file()), place))
