"""Run the notebooks through papermill: what `./run_all.sh` does once the environment stands.

Each notebook is executed with the parameters of the chosen profile into `results/local/executed/<profile>/`, beside a
small state file. A notebook whose cells, parameters, code and facts are those of its last successful run, and whose
products are still there, is not run again. Runs of the quick profile that are published are computed again all the
same, and compared: the summary says how many agree.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import yaml

import sibcore
from sibcore.files import parse_json, write_atomically
from sibrepro import paths
from sibrepro.run.execute import execute
from sibrepro.site.sources import Executed


@dataclasses.dataclass(frozen=True)
class Job:
    """One notebook with the parameters of one profile."""

    notebook: Path
    profile: str
    parameters: dict[str, Any]

    @property
    def name(self) -> str:
        return self.notebook.stem

    @property
    def executed(self) -> Path:
        return paths.local() / "executed" / self.profile / self.notebook.name

    @property
    def state(self) -> Path:
        return self.executed.with_suffix(".json")

    def fingerprint(self) -> str:
        """Changes with the notebook's cells, its parameters, the packages' code and the published facts."""
        cells = nbformat.read(self.notebook, as_version=4).cells
        parts = [*(cell.source for cell in cells), json.dumps(self.parameters, sort_keys=True), _code_and_facts()]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def last(self) -> dict[str, Any] | None:
        """The state of the last successful run, if there was one that can be read."""
        try:
            state = parse_json(self.state.read_text(encoding="utf-8"))
            return state if {"fingerprint", "seconds", "products"} <= set(state) else None
        except (OSError, ValueError, TypeError):
            return None

    def why(self) -> str | None:
        """Why the notebook has to run, or None if nothing changed."""
        last = self.last()
        if last is None:
            return "first run"
        if last["fingerprint"] != self.fingerprint():
            return "its cells, parameters, code or facts changed"
        made = [paths.local() / product["what"] for product in last["products"] if product["kind"] != "run"]
        gone = [path for path in (self.executed, *made) if not path.exists()]
        return f"{paths.relative(gone[0])} is gone" if gone else None


@functools.cache
def _code_and_facts() -> str:
    """Hash of all source files of both packages, and of the published facts."""
    digest = hashlib.sha256()
    packages = (Path(sibcore.__file__).parent, paths.PACKAGE)
    files = [file for package in packages for file in package.rglob("*.py")]
    for file in sorted([*files, *(paths.published() / "facts").glob("*.jsonl")]):
        digest.update(f"{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Outcome:
    job: Job
    status: str  # "done", "unchanged" or "FAILED"
    seconds: float
    products: list[dict[str, Any]]
    error: str | None = None


def jobs(profile: str, only: Iterable[str] = ()) -> list[Job]:
    """The notebooks in order; `only` picks by number or by any part of the name."""
    notebooks = sorted(paths.notebooks().glob("[0-9][0-9]_*.ipynb"))
    wanted = [word for entry in only for word in entry.split(",") if word]
    unknown = [word for word in wanted if not any(word in notebook.stem for notebook in notebooks)]
    if unknown:
        names = "\n  ".join(notebook.stem for notebook in notebooks)
        raise ValueError(f"--only {unknown[0]}: no such notebook; there are\n  {names}")
    chosen = [n for n in notebooks if not wanted or any(word in n.stem for word in wanted)]
    return [Job(notebook, profile, profile_parameters(notebook.stem, profile)) for notebook in chosen]


def profile_parameters(name: str, profile: str) -> dict[str, Any]:
    """What `notebooks/params/<profile>/<name>.yaml` says; the same file serves `papermill -f`."""
    file = paths.notebooks() / "params" / profile / f"{name}.yaml"
    if not file.is_file():
        raise ValueError(f"{paths.relative(file)} is missing: profile {profile!r} needs one for each notebook")
    values = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    if not isinstance(values, dict):
        raise ValueError(f"{paths.relative(file)} should hold `name: value` lines, not a {type(values).__name__}")
    return values


def executed() -> dict[str, Executed]:
    """Notebooks as executed here with the present cells, code and facts, by name; the fullest profile if several."""
    found = {}
    for profile in paths.PROFILES:
        for job in jobs(profile):
            if job.why() is None:
                found[job.name] = Executed(job.executed, profile, job.last()["seconds"])
    return found


def run_all(todo: list[Job], force: bool = False) -> list[Outcome]:
    """Run what has to run. One notebook's failure does not stop the others."""
    outcomes = []
    for number, job in enumerate(todo, start=1):
        why = "forced" if force else job.why()
        if why is None:
            last = job.last()
            _say(f"[{number}/{len(todo)}] {job.name}: unchanged")
            outcomes.append(Outcome(job, "unchanged", last["seconds"], last["products"]))
        else:
            _say(f"[{number}/{len(todo)}] {job.name}: running, profile {job.profile} ({why})")
            outcomes.append(_run(job, force))
            _say(f"[{number}/{len(todo)}] {job.name}: {outcomes[-1].status} after {outcomes[-1].seconds:.0f} s")
    return outcomes


def summary(outcomes: list[Outcome]) -> str:
    """Each notebook, its time, what it produced and where; what was computed again, and what failed."""
    lines = ["", "summary"]
    for outcome in outcomes:
        lines.append(f"  {outcome.job.name:<40} {outcome.status:<10} {outcome.seconds:6.1f} s")
        made = [product["what"] for product in outcome.products if product["kind"] in ("figure", "table")]
        if outcome.job.executed.exists():
            made = [paths.relative(outcome.job.executed), *made]
        lines += [f"      {path}" for path in dict.fromkeys(made)]
    for outcome in outcomes:
        if outcome.error:
            lines += ["", f"FAILED: {outcome.job.name}", *(f"  {line}" for line in outcome.error.splitlines())]
            lines.append(f"  as executed: {paths.relative(outcome.job.executed)}")
    lines += ["", *_compared(outcomes), f"all of it is under {paths.local()}"]
    return "\n".join(lines)


def disagreements(outcomes: list[Outcome]) -> list[str]:
    """What was said of each published run that came out otherwise here."""
    return [compared["text"] for compared in _comparisons(outcomes) if not compared["agrees"]]


def _comparisons(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    told = {product["what"]: product.get("compared") for outcome in outcomes for product in outcome.products}
    return [compared for compared in told.values() if compared]


def _compared(outcomes: list[Outcome]) -> list[str]:
    """How the published runs fared that were computed here again."""
    verdicts = _comparisons(outcomes)
    if not verdicts:
        return []
    agree, largest = sum(v["agrees"] for v in verdicts), max(v["deviation"] for v in verdicts)
    line = f"recomputed here {len(verdicts)}, agree {agree}, largest deviation {largest:.2g} of what is allowed"
    return [*disagreements(outcomes), f"published runs: {line}"]


def _run(job: Job, force: bool) -> Outcome:
    job.executed.parent.mkdir(parents=True, exist_ok=True)
    job.state.unlink(missing_ok=True)
    fingerprint = job.fingerprint()
    asked = {"SIB_RECOMPUTE": "1" if job.profile == "quick" else "", "SIB_FORCE": "1" if force else ""}
    done = execute(
        job.notebook,
        job.executed,
        job.parameters,
        asked,
        on_cell_start=_say_cell,
        stdout_file=_Indented(sys.stdout),
        stderr_file=_Indented(sys.stderr),
    )
    products = list({(line["kind"], line["what"]): line for line in done.told}.values())
    if done.error is None:
        state = {"fingerprint": fingerprint, "seconds": done.seconds, "products": products}
        write_atomically(job.state, json.dumps(state, indent=1).encode())
    return Outcome(job, "FAILED" if done.error else "done", done.seconds, products, done.error)


def _say_cell(cell: Any, cell_index: int) -> None:
    """Which cell it is at: a line each, as readable in a log file as in a terminal."""
    if cell.cell_type == "code":
        _say(f"  cell {cell_index + 1}: {_title(cell.source)}")


class _Indented:
    """A stream that shows a notebook's own output below its cell's line."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> None:
        self.stream.write("".join(f"    {line}\n" for line in text.splitlines() if line.strip()))

    def flush(self) -> None:
        self.stream.flush()


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def _title(source: str) -> str:
    lines = [line for line in source.splitlines() if line.strip() and not line.startswith(("#", "%", "import", "from"))]
    return (lines or source.splitlines() or [""])[0][:80]


def _say(text: str) -> None:
    print(text, flush=True)
