"""A point of a sweep: its parameters, how a Dask worker executes it, and the result that is read back."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from dask.system import CPU_COUNT
from distributed import get_worker
from filelock import FileLock

from sibcore.files import parse_json, write_atomically
from sibrepro import paths
from sibrepro.facts import Record, local, published
from sibrepro.facts.record import experiment_of
from sibrepro.run.notebook import Execution, Notebook, execute, read_back

# The environment variables with which libraries limit their threads.
THREADS = "OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS VECLIB_MAXIMUM_THREADS".split()


@dataclasses.dataclass(frozen=True)
class Point:
    """A point of a sweep.

    Attributes:
        sweep: the name of the sweep.
        notebook: the notebook to execute.
        given: the parameters that papermill injects.
        varied: the names of those parameters that differ between points. They are part of the point's name.
        code: the fingerprint of the code that the notebook can reach.
    """

    sweep: str
    notebook: Notebook
    given: dict[str, Any]
    varied: tuple[str, ...] = ()
    code: str | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """Return all parameters, including those with the notebook's own values."""
        return self.notebook.defaults | self.given

    @property
    def name(self) -> str:
        """Return a name of at most 80 characters: the parameters that vary, and a hash of all parameters."""
        varied = "_".join(f"{name}={self.given[name]}" for name in self.varied) or "point"
        readable = re.sub(r"[^A-Za-z0-9.=_+-]+", "-", varied)[:71].lstrip(".")
        return f"{readable}-{key(self.parameters)}"

    def folder(self, output: Path | None = None) -> Path:
        """Return the folder of the sweep, below `output` or the local results."""
        return (output or paths.local()) / "sweeps" / self.sweep

    def file(self, ending: str, output: Path | None = None) -> Path:
        """Return the point's file with this ending, such as ".ipynb" or ".log"."""
        return self.folder(output) / f"{self.name}{ending}"


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a point, which is stored in the metadata of the executed notebook.

    Attributes:
        point: the point's name.
        notebook: the notebook's name; empty if papermill was called directly.
        parameters: all parameters of the point.
        error: what failed and in which cell, or None.
        seconds: how long the execution took.
        metrics: the numbers of its runs, see `metrics`.
        runs: the ids of its runs.
        source: the `key` of the notebook's source.
        code: the fingerprint of the code it was executed with. None if papermill was called directly.
    """

    point: str
    notebook: str
    parameters: dict[str, Any]
    error: str | None
    seconds: float
    metrics: dict[str, Any] = dataclasses.field(default_factory=dict)
    runs: list[str] = dataclasses.field(default_factory=list)
    source: str | None = None
    code: str | None = None

    @classmethod
    def of(cls, about: tuple[str, str, dict], done: Execution, output: Path, **more: Any) -> Result:
        """Return the result of an execution, with the metrics of the runs that the notebook reported.

        Args:
            about: the name of the point, the name of the notebook, and all parameters.
            done: the execution.
            output: the folder below which its runs are.
            more: other attributes of the result.
        """
        told = dict.fromkeys(line["what"] for line in done.told if line["kind"] == "run")
        records = [record for name in told if (record := _record(name, output))]
        return cls(*about, done.error, done.seconds, metrics(records), [record.id for record in records], **more)

    @property
    def status(self) -> str:
        """Return "done" or "failed"."""
        return "failed" if self.error else "done"

    def write(self, path: Path, notebook: dict[str, Any]) -> None:
        """Write the executed notebook with this result in its metadata, which makes the point a finished one."""
        content = notebook | {"metadata": notebook["metadata"] | {"sweep": dataclasses.asdict(self)}}
        write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def work(point: Point, output: str, mark: str, **limits: Any) -> tuple[Result, dict[str, bytes]]:
    """Execute a point on a Dask worker, and return its result and the files that the worker has to send.

    Args:
        point: the point.
        output: the folder for results on the machine that asked.
        mark: a file in that folder. A worker that does not see it has another disk: it uses a folder of its own and
            sends the files, by their names relative to it.
        limits: passed on to `attempt`.
    """
    get_worker().log_event(mark, point.name)
    if Path(mark).is_file():
        return attempt(point, Path(output), **limits), {}
    home = paths.local()
    point.file(".ipynb", home).unlink(missing_ok=True)  # a result of an earlier sweep, which was not sent
    result = attempt(point, home, **limits)
    folders = [point.folder(home) / "figures" / point.name, *(home / "runs" / run for run in result.runs)]
    files = sorted((file for folder in folders for file in folder.glob("*")), key=lambda file: file.stat().st_mtime_ns)
    # Files are written in this order, so that those which make a run or the point a finished one come last.
    files += [point.file(".log", home), point.file(".ipynb", home)]
    return result, {file.relative_to(home).as_posix(): file.read_bytes() for file in files if file.is_file()}


def attempt(point: Point, output: Path, slots: int, threads: int | None = None, limit: float | None = None) -> Result:
    """Execute a point, unless another sweep has done so meanwhile, and return its result.

    Args:
        point: the point.
        output: the folder for results.
        slots: how many points run on this machine at the same time.
        threads: how many threads the point may use. By default the cores are shared equally between the slots.
        limit: the number of seconds after which the point has failed.
    """
    running = point.folder(output) / ".running"
    running.mkdir(parents=True, exist_ok=True)
    threads = threads or max(CPU_COUNT // slots, 1)
    with FileLock(running / f"{point.name}.lock"):
        result = read(point.file(".ipynb", output))
        if result and result.code in (None, point.code):
            return result
        executed = running / f"{point.name}.ipynb"
        figures = point.folder(output) / "figures" / point.name
        environment = {"SIB_OUTPUT": str(output), "SIB_FIGURES": str(figures)}
        environment |= dict.fromkeys(THREADS, str(threads))
        with point.file(".log", output).open("w", encoding="utf-8") as log:
            done = execute(
                point.notebook.content, executed, point.given, environment, limit, stdout_file=log, stderr_file=log
            )
        about = point.name, point.notebook.name, point.parameters
        result = Result.of(about, done, output, source=key(point.notebook.source), code=point.code)
        result.write(point.file(".ipynb", output), json.loads(executed.read_text(encoding="utf-8")))
        executed.unlink()
        return result


def key(value: Any) -> str:
    """Return a hash of eight hex digits, for example of parameters, whose order does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:8]


def read_all(folder: Path) -> dict[str, Result]:
    """Return the results in a sweep's folder by the `key` of their parameters, a failed one only if none succeeded."""
    found = [result for file in sorted(folder.glob("*.ipynb")) if (result := read(file))]
    found.sort(key=lambda result: result.status == "done")
    return {key(result.parameters): result for result in found}


def read(path: Path) -> Result | None:
    """Return the result of a notebook that a sweep or papermill executed, or None if it is not finished."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        if "sweep" in content["metadata"]:
            return Result(**content["metadata"]["sweep"])
        parameters, done = read_back(content)
        return Result.of((path.stem, "", parameters), done, paths.local())
    except (OSError, ValueError, KeyError, TypeError):  # missing, half-written, or not executed by papermill
        return None


def _record(name: str, output: Path) -> Record | None:
    """Return a run of a point, computed below `output` or published, or None if there is neither."""
    folder = output / "runs" / name
    if (folder / local.DONE).is_file():
        return local.read(folder)
    return published.find(experiment_of(name)).get(name)


def metrics(records: list[Record]) -> dict[str, Any]:
    """Return the scalar metrics of a point's runs by name.

    If the point has several runs, a name begins with the experiment, as in `few_shot.last/test`. If several runs are of
    one experiment, it also has the parameters that differ between them, as in `few_shot[K=3].last/test`.
    """
    found = {}
    for record in records:
        prefix = f"{_label(record, records)}." if len(records) > 1 else ""
        for name, value in record.metrics.items():
            if isinstance(value, (int, float, str)):
                found[prefix + name] = value
    return found


def _label(record: Record, records: list[Record]) -> str:
    """Return the experiment of a run, with the parameters that tell the run apart from others of that experiment."""
    experiment = experiment_of(record.id)
    others = [other.params for other in records if experiment_of(other.id) == experiment]
    differ = []
    for name, value in record.params.items():
        if any(other.get(name) != value for other in others):
            differ.append(f"{name}={value}")
    return f"{experiment}[{','.join(differ)}]" if differ else experiment
