"""Running the points of a sweep on a Dask cluster.

A worker that sees the sweep's folder writes there. One that does not works in its own `results/`, and the files come
back through the scheduler. Dask gives the points of a worker that died to another one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from filelock import Timeout

from sibcore.files import write_atomically
from sibrepro import paths
from sibrepro.facts import runs
from sibrepro.run.sweep.attempt import Attempt, Limits, cores
from sibrepro.run.sweep.point import Point, Result
from sibrepro.run.sweep.progress import Progress

Contents = dict[str, bytes]  # by path relative to the output folder


@dataclasses.dataclass(frozen=True)
class Order:
    """What a worker gets to know."""

    point: Point
    output: str  # the client's output folder
    mark: str  # a file there: who sees it shares the folder
    slots: int  # points at a time on one machine
    limits: Limits
    share_threads: bool  # divide the worker's machine by `slots` instead of `limits.threads`


def run(
    points: list[Point],
    output: Path,
    address: str,
    processes: int,
    limits: Limits,
    share_threads: bool,
    progress: Progress,
) -> None:
    """Execute all points on the cluster at `address`, or on one of `processes` workers made here if it is `local`."""
    if not points:
        return
    with _client(address, processes) as client, _mark(points[0].files(output).running) as mark:
        started: queue.SimpleQueue[str] = queue.SimpleQueue()
        client.subscribe_topic(mark.name, lambda event: started.put(event[1]))
        slots = _slots(client.nthreads())
        progress.slots = max(sum(client.nthreads().values()), 1)
        orders = [Order(point, str(output), str(mark), slots, limits, share_threads) for point in points]
        waiting = {client.submit(execute, o, key=f"{o.point.name}-{mark.name}", pure=False): o.point for o in orders}
        while waiting:
            while not started.empty():
                progress.start(started.get())
            for future in [future for future in waiting if future.done()]:
                progress.finish(_collect(future, waiting.pop(future), output))
            progress.show()
            time.sleep(0.1)


def execute(order: Order) -> tuple[Result, Contents]:
    """What a worker does: the result, and the files if they cannot be seen from where the sweep was started."""
    from distributed import get_worker

    worker = get_worker()
    worker.log_event(Path(order.mark).name, order.point.name)
    slots = max(order.slots, worker.state.nthreads)
    threads = max(cores() // slots, 1) if order.share_threads else order.limits.threads
    return execute_here(order, dataclasses.replace(order.limits, threads=threads))


def execute_here(order: Order, limits: Limits) -> tuple[Result, Contents]:
    shared = Path(order.mark).is_file()
    output = Path(order.output) if shared else paths.output()
    attempt = None
    while attempt is None:  # a worker that just died may hold the point for a moment
        try:
            attempt = Attempt(order.point, output, limits)
        except Timeout:
            time.sleep(0.2)
    result = attempt.wait()
    return result, {} if shared else _contents(order.point, result, output)


def receive(contents: Contents, output: Path) -> None:
    """Write what a worker sent, each file as a whole and what makes others valid last; runs that are here stay."""

    def rank(name: str) -> tuple[bool, bool]:
        return name.startswith("results/sweeps/") and name.endswith(".json"), name.endswith(f"/{runs.DONE}")

    here = {name for name in contents if (output / name).with_name(runs.DONE).is_file()}
    for name in sorted(set(contents) - here, key=rank):
        write_atomically(output / name, contents[name])


def _contents(point: Point, result: Result, output: Path) -> Contents:
    files = point.files(output)
    folders = [files.figures, *(output / "results" / "runs" / run for run in result.runs)]
    found = [files.executed, files.log, files.result, *(file for folder in folders for file in folder.glob("*"))]
    return {file.relative_to(output).as_posix(): file.read_bytes() for file in found if file.is_file()}


def _collect(future: Any, point: Point, output: Path) -> Result:
    try:
        result, contents = future.result()
    except Exception as error:  # such as KilledWorker: a point that took several workers down with it
        failure = f"{type(error).__name__}: {error}"
        result, contents = Result(point.name, point.notebook.name, point.parameters, failure, 0.0, 0.0), {}
        result.write(point.files(output).result)
    receive(contents, output)
    return result


@contextlib.contextmanager
def _client(address: str, processes: int) -> Iterator[Any]:
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ValueError("--dask needs Dask: pip install 'sibcore[cluster]'") from None
    with contextlib.ExitStack() as stack:
        if address == "local":
            cluster = LocalCluster(n_workers=processes, threads_per_worker=1, dashboard_address=None)
            address = stack.enter_context(cluster).scheduler_address
        try:
            client = stack.enter_context(Client(address, timeout=30))
        except OSError as error:
            raise ValueError(f"--dask {address}: no scheduler answers there ({error})") from None
        yield client


@contextlib.contextmanager
def _mark(folder: Path) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f"sweep-{uuid.uuid4().hex[:12]}"
    mark.touch()
    try:
        yield mark
    finally:
        mark.unlink(missing_ok=True)


def _slots(nthreads: dict[str, int]) -> int:
    """Points that run at a time on one machine, where they are most."""
    hosts = Counter()
    for address, count in nthreads.items():
        hosts[urlsplit(address).hostname] += count
    return max(hosts.values(), default=1)
