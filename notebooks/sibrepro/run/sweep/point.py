"""One point of a sweep: what it is, what a Dask worker does with it, and what came of it."""

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

THREADS = "OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS VECLIB_MAXIMUM_THREADS".split()


@dataclasses.dataclass(frozen=True)
class Point:
    sweep: str
    notebook: Notebook
    given: dict[str, Any]  # what papermill injects
    varied: tuple[str, ...] = ()  # those of `given` that the name shows
    code: str | None = None  # the fingerprint of the code that the notebook can reach

    @property
    def parameters(self) -> dict[str, Any]:
        """All of them, also those the notebook sets itself."""
        return self.notebook.defaults | self.given

    @property
    def name(self) -> str:
        """What varies, readable, and a hash of everything; at most 80 characters."""
        shown = "_".join(f"{name}={self.given[name]}" for name in self.varied) or "point"
        return f"{re.sub(r'[^A-Za-z0-9.=_+-]+', '-', shown)[:71].lstrip('.')}-{key(self.parameters)}"

    def folder(self, output: Path | None = None) -> Path:
        return (output or paths.local()) / "sweeps" / self.sweep

    def file(self, ending: str, output: Path | None = None) -> Path:
        return self.folder(output) / f"{self.name}{ending}"


@dataclasses.dataclass(frozen=True)
class Result:
    """What came of a point: it ran to its end, or it failed. It is kept in the executed notebook's metadata."""

    point: str
    notebook: str
    parameters: dict[str, Any]
    error: str | None
    seconds: float
    metrics: dict[str, Any] = dataclasses.field(default_factory=dict)
    runs: list[str] = dataclasses.field(default_factory=list)
    source: str | None = None  # the key of the notebook's source
    code: str | None = None  # the fingerprint of the code; None if a plain papermill call executed it

    @classmethod
    def of(cls, about: tuple[str, str, dict], done: Execution, output: Path, **more: Any) -> Result:
        """With the metrics of the runs that the notebook told of; `about` is point, notebook and parameters."""
        told = dict.fromkeys(line["what"] for line in done.told if line["kind"] == "run")
        records = list(filter(None, (_record(name, output) for name in told)))
        return cls(*about, done.error, done.seconds, metrics(records), [record.id for record in records], **more)

    @property
    def status(self) -> str:
        return "failed" if self.error else "done"

    def write(self, path: Path, notebook: dict[str, Any]) -> None:
        """Write the executed notebook with this in it: from then on the point is finished."""
        content = notebook | {"metadata": notebook["metadata"] | {"sweep": dataclasses.asdict(self)}}
        write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def work(point: Point, output: str, mark: str, **limits: Any) -> tuple[Result, dict[str, bytes]]:
    """Execute a point on a worker. One that does not see the file `mark` does not share `output`, and sends files."""
    get_worker().log_event(mark, point.name)
    if Path(mark).is_file():
        return attempt(point, Path(output), **limits), {}
    home = paths.local()
    point.file(".ipynb", home).unlink(missing_ok=True)  # of an earlier sweep, which did not count where this was asked
    result = attempt(point, home, **limits)
    folders = [point.folder(home) / "figures" / point.name, *(home / "runs" / run for run in result.runs)]
    files = sorted((file for folder in folders for file in folder.glob("*")), key=lambda file: file.stat().st_mtime_ns)
    files += [point.file(".log", home), point.file(".ipynb", home)]  # what makes a run or the point count comes last
    return result, {file.relative_to(home).as_posix(): file.read_bytes() for file in files if file.is_file()}


def attempt(point: Point, output: Path, slots: int, threads: int | None = None, limit: float | None = None) -> Result:
    """Execute a point, unless another sweep did. By default it has its share of the cores, for `slots` at a time."""
    running = point.folder(output) / ".running"
    running.mkdir(parents=True, exist_ok=True)
    threads = threads or max(CPU_COUNT // slots, 1)
    with FileLock(running / f"{point.name}.lock"):
        result = read(point.file(".ipynb", output))
        if result and result.code in (None, point.code):
            return result
        figures, executed = point.folder(output) / "figures" / point.name, running / f"{point.name}.ipynb"
        environment = {**dict.fromkeys(THREADS, str(threads)), "SIB_OUTPUT": str(output), "SIB_FIGURES": str(figures)}
        with point.file(".log", output).open("w", encoding="utf-8") as log:
            options = {"limit": limit, "stdout_file": log, "stderr_file": log}
            done = execute(point.notebook.content, executed, point.given, environment, **options)
        about = point.name, point.notebook.name, point.parameters
        result = Result.of(about, done, output, source=key(point.notebook.source), code=point.code)
        result.write(point.file(".ipynb", output), json.loads(executed.read_text(encoding="utf-8")))
        executed.unlink()
        return result


def key(value: Any) -> str:
    """Eight hex digits that name a value, such as a set of parameters in whatever order they are written."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:8]


def read_all(folder: Path) -> dict[str, Result]:
    """What is finished in a sweep's folder, by the key of its parameters; done beats failed."""
    found = sorted(filter(None, map(read, sorted(folder.glob("*.ipynb")))), key=lambda result: result.status == "done")
    return {key(result.parameters): result for result in found}


def read(path: Path) -> Result | None:
    """The result in a notebook executed by a sweep or by a plain `papermill` call; None if it is not finished."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        if "sweep" in content["metadata"]:
            return Result(**content["metadata"]["sweep"])
        parameters, done = read_back(content)
        return Result.of((path.stem, "", parameters), done, paths.local())
    except (OSError, ValueError, KeyError, TypeError):  # not there, half-written, or not made by papermill
        return None


def _record(name: str, output: Path) -> Record | None:
    """A run of a point: computed below `output`, or published."""
    folder = output / "runs" / name
    return local.read(folder) if (folder / local.DONE).is_file() else published.find(experiment_of(name)).get(name)


def metrics(records: list[Record]) -> dict[str, Any]:
    """The scalar metrics of a point's runs; with several runs as `few_shot.last/test`, or `few_shot[K=3].last/test`."""
    named = {}
    for record in records:
        experiment = experiment_of(record.id)
        alike = [other for other in records if experiment_of(other.id) == experiment]
        differ = [f"{n}={v}" for n, v in record.params.items() if any(other.params.get(n) != v for other in alike)]
        prefix = experiment + (f"[{','.join(differ)}]." if differ else ".") if len(records) > 1 else ""
        named |= {f"{prefix}{n}": v for n, v in record.metrics.items() if isinstance(v, (int, float, str))}
    return named
