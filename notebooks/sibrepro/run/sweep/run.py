"""From a command to its points, what is there of them already, and running the rest on Dask."""

from __future__ import annotations

import argparse
import io
import logging
import re
import sys
import tempfile
from collections import Counter
from urllib.parse import urlsplit

import distributed
from dask.system import CPU_COUNT
from tqdm import tqdm

from sibcore.files import write_atomically
from sibrepro import params, paths
from sibrepro.run.notebook import Notebook
from sibrepro.run.sweep import grid, table
from sibrepro.run.sweep.point import Point, Result, key, read_all, work


def main(options: argparse.Namespace) -> int:
    points = planned(options)
    place = next(iter(points.values())).folder()
    there = {k: result for k, result in read_all(place).items() if k in points}
    again = {"failed", "done"} if options.redo else {"failed"} if options.retry_failed else set()
    other = {k for k, result in there.items() if result.code not in (None, points[k].code)}
    kept = {k: result for k, result in there.items() if result.status not in again and k not in other}
    todo = {k: point for k, point in points.items() if k not in kept}
    if other:
        print(f"{len(other)} points were made by other code than now, and run again")
    if unknown := [result for result in kept.values() if result.code is None]:
        print(f"{len(unknown)} points were executed by plain papermill: which code made them is not known")
    if stale := [k for k, result in kept.items() if result.source not in (None, key(points[k].notebook.source))]:
        print(f"{len(stale)} points were made by other cells than now; --redo runs them again")
    if failed := [result for result in kept.values() if result.error]:
        print(f"{len(failed)} points failed before and stay so; --retry-failed runs them again")
    processes = max(min(options.processes or CPU_COUNT, len(todo)), 1)
    if options.dry_run:
        print(f"would run {len(todo)} points, {processes} at a time")
        print("\n".join(f"  {kept[k].status if k in kept else 'run':<8} {point.name}" for k, point in points.items()))
        return 0
    for k in todo.keys() & there.keys():
        todo[k].file(".ipynb").unlink(missing_ok=True)
    if todo:
        with connect(options.dask, processes) as client:
            execute(client, list(todo.values()), options.threads, options.timeout)
    table.write(place)
    failed = [result for k, result in read_all(place).items() if k in points and result.error]
    for result in failed:
        print(f"FAILED: {result.point}\n  {result.error}\n  as executed: {paths.relative(place)}/{result.point}.ipynb")
    return 1 if failed else 0


def planned(options: argparse.Namespace) -> dict[str, Point]:
    """The points by key; every one is checked here, before anything runs."""
    notebook = Notebook.read(options.notebook)
    sweep = options.name or notebook.name
    if not re.fullmatch(r"\w[\w.-]*", sweep):
        raise ValueError(f"--name {sweep}: expected letters, digits, `-`, `_` and `.`, for it names a folder")
    profile = params.of_profile(options.profile, notebook.name) if options.profile else {}
    fixed = {name: params.parse(value, f"-p {name} {value}") for name, value in options.parameter}
    code = notebook.code
    points = [
        Point(sweep, notebook, notebook.conform(profile | grid.union([fixed, varied])), tuple(varied), code)
        for varied in grid.points(options.grid, options.file, options.zip)
    ]
    place = points[0].folder()
    for other in read_all(place).values():
        if other.notebook not in ("", notebook.name):
            raise ValueError(f"{paths.relative(place)} holds points of {other.notebook}: choose another --name")
    return {key(point.parameters): point for point in points}


def connect(address: str, processes: int) -> distributed.Client:
    if address == "local":
        workers = {"n_workers": processes, "threads_per_worker": 1, "processes": True, "memory_limit": None}
        return distributed.Client(**workers, dashboard_address=None, silence_logs=logging.ERROR)
    try:
        return distributed.Client(address, timeout=30)
    except OSError as error:
        raise ValueError(f"--dask {address}: no scheduler answers there ({error})") from None


def execute(client: distributed.Client, points: list[Point], threads: int | None, limit: float | None) -> None:
    """Execute all points on the client's workers. Points of a worker that dies are given to another one by Dask."""
    running = points[0].folder() / ".running"
    running.mkdir(parents=True, exist_ok=True)
    live, look = sys.stderr.isatty(), {"desc": points[0].sweep, "unit": "point", "smoothing": 0}
    bar = tqdm(total=len(points), **look, file=sys.stderr if live else io.StringIO())
    tell = bar.write if live else lambda event: print(f"{event}  ({bar})", flush=True)  # a log gets one line each
    with bar, tempfile.NamedTemporaryFile(dir=running) as mark:
        client.subscribe_topic(mark.name, lambda event: tell(f"running  {event[1]}"))
        options = {"output": str(paths.local()), "mark": mark.name, "slots": slots(client.nthreads())}
        options |= {"threads": threads, "limit": limit, "pure": False}
        waiting = dict(zip(client.map(work, points, **options), points, strict=True))
        for future in distributed.as_completed(list(waiting)):
            result = collect(future, waiting.pop(future))
            bar.update()
            tell(f"{result.status:<8} {result.point}  {result.seconds:.1f} s  {result.error or ''}".rstrip())


def collect(future: distributed.Future, point: Point) -> Result:
    try:
        result, files = future.result()
    except Exception as error:  # such as KilledWorker: a point that took several workers down with it
        failure = f"{type(error).__name__}: {error}"
        result, files = Result(point.name, point.notebook.name, point.parameters, failure, 0.0), {}
        result.write(point.file(".ipynb"), point.notebook.content)
    for name, content in files.items():
        if not (name.startswith("runs/") and (paths.local() / name).exists()):  # a run that is here stays
            write_atomically(paths.local() / name, content)
    return result


def slots(nthreads: dict[str, int]) -> int:
    """Points that run at a time on one machine, where they are most."""
    hosts = Counter(urlsplit(address).hostname for address, count in nthreads.items() for _ in range(count))
    return max(hosts.values(), default=1)
