"""One point of a sweep, and what came of it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sibcore.files import write_atomically
from sibrepro import paths
from sibrepro.facts import runs
from sibrepro.run.sweep.child import what_failed_in
from sibrepro.run.sweep.grid import Notebook, Values, parameters_cell

RUNNING = ".running"


@dataclasses.dataclass(frozen=True)
class Point:
    sweep: str
    notebook: Notebook
    given: Values  # what papermill injects
    varied: tuple[str, ...] = ()  # those of `given` that the name shows
    fingerprint: str | None = None  # of the notebook's cells and the code behind them

    @property
    def parameters(self) -> Values:
        """All of them, also those the notebook sets itself."""
        return self.notebook.defaults | self.given

    @property
    def key(self) -> str:
        return key(self.parameters)

    @property
    def name(self) -> str:
        """What varies, readable, and a hash of everything; at most 80 characters."""
        shown = "_".join(f"{name}={self.given[name]}" for name in self.varied) or "point"
        return f"{re.sub(r'[^A-Za-z0-9.=_+-]+', '-', shown)[:71].lstrip('.')}-{self.key}"

    def files(self, output: Path) -> Files:
        return Files(folder(self.sweep, output), self.name)


@dataclasses.dataclass(frozen=True)
class Files:
    """Where a point's files are."""

    folder: Path
    name: str

    @property
    def executed(self) -> Path:
        return self.folder / f"{self.name}.ipynb"

    @property
    def result(self) -> Path:
        return self.folder / f"{self.name}.json"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def figures(self) -> Path:
        return self.folder / "figures" / self.name

    @property
    def running(self) -> Path:
        return self.folder / RUNNING


@dataclasses.dataclass(frozen=True)
class Result:
    """What a point's JSON file holds: it ran to its end, or it failed."""

    point: str
    notebook: str
    parameters: Values
    error: str | None
    seconds: float | None  # from start to end
    cell_seconds: float  # of these, inside the notebook's cells
    metrics: dict[str, Any] = dataclasses.field(default_factory=dict)
    runs: list[str] = dataclasses.field(default_factory=list)
    fingerprint: str | None = None

    @property
    def status(self) -> str:
        return "failed" if self.error else "done"

    @property
    def key(self) -> str:
        return key(self.parameters)

    def write(self, path: Path) -> None:
        write_atomically(path, (json.dumps(dataclasses.asdict(self), indent=1) + "\n").encode())


def folder(sweep: str, output: Path | None = None) -> Path:
    return (paths.results() if output is None else output / "results") / "sweeps" / sweep


def key(parameters: Values) -> str:
    """Eight hex digits that name a set of parameters, in whatever order they are written."""
    return hashlib.sha256(json.dumps(parameters, sort_keys=True, default=str).encode()).hexdigest()[:8]


def read_results(folder: Path) -> list[Result]:
    """What is finished in a sweep's folder, one result for each set of parameters, in the order of their names.

    Besides the points of sweeps these are notebooks that a plain `papermill` call put there.
    """
    own = [read_result(path) for path in sorted(folder.glob("*.json"))]
    names = {result.point for result in own if result}
    plain = [read_executed(path) for path in sorted(folder.glob("*.ipynb")) if path.stem not in names]
    found = sorted(filter(None, own + plain), key=lambda result: result.status == "done")
    best = {result.key: result for result in found}  # done beats failed
    return sorted(best.values(), key=lambda result: result.point)


def read_result(path: Path) -> Result | None:
    """A point's JSON file, or None if it is none (any more)."""
    try:
        return Result(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def read_executed(path: Path) -> Result | None:
    """The result in a notebook executed by a plain `papermill` call, or None while it is not finished.

    Its runs are those that `sibrepro.facts.runs` named on stderr, which is part of the executed notebook.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        about = content["metadata"]["papermill"]
    except (OSError, ValueError, KeyError):  # half-written, or not made by papermill
        return None
    if not about.get("end_time"):
        return None
    named = re.findall(runs.SAID, "".join(_stderr(content["cells"])), re.MULTILINE)
    defaults, given = parameters_cell(content["cells"]), about.get("parameters", {})
    floats = {n: float(v) for n, v in given.items() if type(v) is int and type(defaults.get(n)) is float}
    records = _records([paths.results() / "runs" / name for name in named])
    return Result(
        point=path.stem,
        notebook="",
        parameters=defaults | given | floats,
        error=_error(content["cells"]),
        seconds=about.get("duration"),
        cell_seconds=cell_seconds(content["cells"]),
        metrics=metrics(records),
        runs=[record.id for record in records],
    )


def metrics(records: list[runs.Record]) -> dict[str, Any]:
    """The scalar metrics of a point's runs by name.

    With several runs the experiment is put in front, `few_shot.last/test`; with several of one experiment also what
    tells them apart, `few_shot[K=3].last/test`.
    """
    named: dict[str, Any] = {}
    for record in records:
        experiment = record.id.rpartition("-")[0]
        alike = [other for other in records if other.id.rpartition("-")[0] == experiment]
        differ = {n: v for n, v in record.params.items() if any(other.params.get(n) != v for other in alike)}
        apart = f"[{','.join(f'{name}={value}' for name, value in differ.items())}]" if differ else ""
        prefix = f"{experiment}{apart}." if len(records) > 1 else ""
        scalars = {n: v for n, v in record.metrics.items() if isinstance(v, (int, float, str))}
        named |= {f"{prefix}{name}": value for name, value in scalars.items()}
    return named


def cell_seconds(cells: Iterable[dict]) -> float:
    """The time that papermill measured inside cells."""
    return round(sum(cell["metadata"].get("papermill", {}).get("duration") or 0.0 for cell in cells), 3)


def _records(folders: Iterable[Path]) -> list[runs.Record]:
    return [runs.load(folder) for folder in dict.fromkeys(folders) if (folder / runs.DONE).is_file()]


def _stderr(cells: Iterable[dict]) -> Iterable[str]:
    for cell in cells:
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                yield "".join(output["text"])


def _error(cells: Iterable[dict]) -> str | None:
    own = (cell for cell in cells if "papermill-error-cell-tag" not in cell["metadata"].get("tags", []))
    for number, cell in enumerate(own):
        for output in cell.get("outputs", []):
            if output["output_type"] == "error":
                return what_failed_in(number, output["ename"], output["evalue"])
        asked = cell["cell_type"] == "code" and "".join(cell["source"]).strip()
        if asked and "shell.execute_reply" not in cell["metadata"].get("execution", {}):  # and no answer came
            return f"in cell {number + 1}: the kernel died"
    return None
