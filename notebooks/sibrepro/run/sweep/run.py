"""`sib sweep run`: list the points of a sweep, find those that are finished, and run the others on Dask."""

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
    """Run the points of a sweep that are not finished, and write its table. Return 1 if a point has failed."""
    points = planned(options)
    place = next(iter(points.values())).folder()
    finished = {k: result for k, result in read_all(place).items() if k in points}
    other_code = {k for k, result in finished.items() if result.code not in (None, points[k].code)}
    kept = {}
    for k, result in finished.items():
        again = options.redo or (options.retry_failed and result.error)
        if not again and k not in other_code:
            kept[k] = result
    todo = {k: point for k, point in points.items() if k not in kept}
    _say_what_is_kept(points, kept, len(other_code))
    processes = max(min(options.processes or CPU_COUNT, len(todo)), 1)
    if options.dry_run:
        print(f"would run {len(todo)} points, {processes} at a time")
        for k, point in points.items():
            print(f"  {kept[k].status if k in kept else 'run':<8} {point.name}")
        return 0
    for k in todo.keys() & finished.keys():
        todo[k].file(".ipynb").unlink(missing_ok=True)
    if todo:
        with connect(options.dask, processes) as client:
            execute(client, list(todo.values()), options.threads, options.timeout)
    table.write(place)
    failed = [result for k, result in read_all(place).items() if k in points and result.error]
    for result in failed:
        print(f"FAILED: {result.point}\n  {result.error}\n  executed: {paths.relative(place)}/{result.point}.ipynb")
    return 1 if failed else 0


def _say_what_is_kept(points: dict[str, Point], kept: dict[str, Result], other_code: int) -> None:
    """Print how many points run again because code changed, and what to know about the points that are kept."""
    unknown = sum(result.code is None for result in kept.values())
    other_cells = sum(result.source not in (None, key(points[k].notebook.source)) for k, result in kept.items())
    failed = sum(bool(result.error) for result in kept.values())
    if other_code:
        print(f"{other_code} points were computed before the code changed, so they run again")
    if unknown:
        print(f"{unknown} points were executed with papermill alone, so the code behind them is not recorded")
    if other_cells:
        print(f"{other_cells} points were computed before the cells changed; --redo runs them again")
    if failed:
        print(f"{failed} points failed before and stay as they are; --retry-failed runs them again")


def planned(options: argparse.Namespace) -> dict[str, Point]:
    """Return the points that the command asks for by the `key` of their parameters, after checking all of them."""
    notebook = Notebook.read(options.notebook)
    sweep = options.name or notebook.name
    if not re.fullmatch(r"\w[\w.-]*", sweep):
        raise ValueError(f"--name {sweep}: it names a folder, so use letters, digits, `-`, `_` and `.` only")
    profile = params.of_profile(options.profile, notebook.name) if options.profile else {}
    fixed = {name: params.parse(value, f"-p {name} {value}") for name, value in options.parameter}
    code = notebook.code
    points = []
    for varied in grid.points(options.grid, options.file, options.zip):
        given = notebook.conform(profile | grid.union([fixed, varied]))
        points.append(Point(sweep, notebook, given, tuple(varied), code))
    place = points[0].folder()
    for other in read_all(place).values():
        if other.notebook not in ("", notebook.name):
            raise ValueError(f"{paths.relative(place)} holds points of {other.notebook}: choose another --name")
    return {key(point.parameters): point for point in points}


def connect(address: str, processes: int) -> distributed.Client:
    """Connect to a Dask cluster.

    Args:
        address: the address of its scheduler, or "local" for processes on this machine.
        processes: how many of these.
    """
    if address == "local":
        workers = {"n_workers": processes, "threads_per_worker": 1, "processes": True, "memory_limit": None}
        return distributed.Client(**workers, dashboard_address=None, silence_logs=logging.ERROR)
    try:
        return distributed.Client(address, timeout=30)
    except OSError as error:
        raise ValueError(f"--dask {address}: no scheduler answers there ({error})") from None


def execute(client: distributed.Client, points: list[Point], threads: int | None, limit: float | None) -> None:
    """Execute points on the workers of a cluster. If a worker dies, Dask gives its point to another worker.

    Args:
        client: the connection to the cluster.
        points: the points.
        threads: how many threads each may use, see `attempt`.
        limit: the number of seconds after which a point has failed.
    """
    running = points[0].folder() / ".running"
    running.mkdir(parents=True, exist_ok=True)
    live = sys.stderr.isatty()
    shown_in = sys.stderr if live else io.StringIO()
    bar = tqdm(total=len(points), desc=points[0].sweep, unit="point", smoothing=0, file=shown_in)

    def tell(event: str) -> None:
        if live:
            bar.write(event)
        else:  # a log file gets the state of the bar at the end of each line
            print(f"{event}  ({bar})", flush=True)

    with bar, tempfile.NamedTemporaryFile(dir=running) as mark:
        client.subscribe_topic(mark.name, lambda event: tell(f"running  {event[1]}"))
        futures = client.map(
            work,
            points,
            output=str(paths.local()),
            mark=mark.name,
            slots=slots(client.nthreads()),
            threads=threads,
            limit=limit,
            pure=False,  # a point that is run again is computed again
        )
        waiting = dict(zip(futures, points, strict=True))
        del futures  # a future that nothing refers to frees its result
        for future in distributed.as_completed(list(waiting)):
            result = collect(future, waiting.pop(future))
            bar.update()
            done = f"{result.status:<8} {result.point}  {result.seconds:.1f} s"
            tell(f"{done}  {result.error}" if result.error else done)


def collect(future: distributed.Future, point: Point) -> Result:
    """Return the result of a point, after writing the files that its worker sent."""
    try:
        result, files = future.result()
    except Exception as error:  # such as KilledWorker, for a point with which several workers died
        failure = f"{type(error).__name__}: {error}"
        result, files = Result(point.name, point.notebook.name, point.parameters, failure, 0.0), {}
        result.write(point.file(".ipynb"), point.notebook.content)
    for name, content in files.items():
        if not (name.startswith("runs/") and (paths.local() / name).exists()):  # a run that exists is not replaced
            write_atomically(paths.local() / name, content)
    return result


def slots(nthreads: dict[str, int]) -> int:
    """Return how many points run at the same time on the machine that runs most of them.

    Args:
        nthreads: the number of threads of each worker by its address.
    """
    hosts: Counter[str | None] = Counter()
    for address, count in nthreads.items():
        hosts[urlsplit(address).hostname] += count
    return max(hosts.values(), default=1)
