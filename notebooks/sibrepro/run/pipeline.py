"""Run the notebooks through papermill: what `./run_all.sh` does once the environment stands.

Each notebook is executed with the parameters of the chosen profile into `results/local/executed/<profile>/`, beside a
small state file. A notebook whose cells, parameters and facts are those of its last successful run, whose products are
still there, and for which the code that it reaches is the same, is not run again. Runs of the quick profile that are
published are computed again all the same, and compared: the summary says how many agree.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
import json
import os
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import nbformat

from sibcore import fingerprint
from sibcore.files import parse_json, write_atomically
from sibrepro import params, paths, site
from sibrepro.facts import compare
from sibrepro.run.notebook import code_of, execute

CODE_CHANGED = "code changed"


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

    @property
    def code(self) -> fingerprint.Hashes:
        """The hash of every module that the notebook can reach."""
        return code_of(self.name, self._cells())

    def content(self) -> str:
        """Return a hash of the notebook's cells, its parameters and the published facts."""
        parts = [*(cell.source for cell in self._cells()), json.dumps(self.parameters, sort_keys=True), _facts()]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def last(self) -> dict[str, Any] | None:
        """Return the state of the last successful run, if there was one that can be read."""
        try:
            state = parse_json(self.state.read_text(encoding="utf-8"))
            return state if {"content", "code", "seconds", "products"} <= set(state) else None
        except (OSError, ValueError, TypeError):
            return None

    def why(self) -> str | None:
        """Return why the notebook has to run, or None if nothing changed."""
        last = self.last()
        if last is None:
            return "first run"
        if last["content"] != self.content():
            return "its cells, parameters or facts changed"
        if changes := fingerprint.changed(last["code"], self.code):
            return f"code changed: {fingerprint.listed(changes)}"
        made = [paths.local() / product["what"] for product in last["products"] if product["kind"] != "run"]
        gone = [path for path in (self.executed, *made) if not path.exists()]
        return f"{paths.relative(gone[0])} is gone" if gone else None

    def _cells(self) -> list[nbformat.NotebookNode]:
        return nbformat.read(self.notebook, as_version=4).cells


@functools.cache
def _facts() -> str:
    """Return a hash of the published facts, and of the list of the other published files."""
    digest = hashlib.sha256()
    for file in [*sorted((paths.published() / "facts").glob("*.jsonl")), paths.published() / "SHA256SUMS"]:
        if file.is_file():
            digest.update(f"{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Outcome:
    job: Job
    status: str  # "done", "unchanged" or "FAILED"
    seconds: float
    products: list[dict[str, Any]]
    error: str | None = None


def main(options: argparse.Namespace) -> int:
    """`sib run`: 1 if a notebook failed, or a published number came out otherwise."""
    todo = jobs(options.profile, options.only)
    if options.keep:
        os.environ[fingerprint.KEEP] = ",".join(options.keep)
    if options.list:
        for job in todo:
            why = "forced" if options.force else job.why()
            print(f"{job.name:<40} {'would run: ' + why if why else 'unchanged'}")
        return 0
    outcomes = run_all(todo, options.force)
    print(summary(outcomes))
    if options.report:
        report(options)
    agree = all(verdict.agrees for verdict in compared(outcomes))
    return 0 if agree and not any(outcome.error for outcome in outcomes) else 1


def report(options: argparse.Namespace) -> int:
    """`sib report`."""
    print(f"report: {site.build(options.out, executed(), reference=True)}")
    return 0


def jobs(profile: str, only: Iterable[str] = ()) -> list[Job]:
    """The notebooks in order; `only` picks by number or by any part of the name."""
    notebooks = sorted(paths.notebooks().glob("[0-9][0-9]_*.ipynb"))
    wanted = [word for entry in only for word in entry.split(",") if word]
    for word in wanted:
        if not any(word in notebook.stem for notebook in notebooks):
            names = "\n  ".join(notebook.stem for notebook in notebooks)
            raise ValueError(f"--only {word}: no such notebook; there are\n  {names}")
    chosen = [n for n in notebooks if not wanted or any(word in n.stem for word in wanted)]
    return [Job(notebook, profile, params.of_profile(profile, notebook.stem)) for notebook in chosen]


def executed() -> dict[str, tuple[Path, str]]:
    """Notebooks as executed here with the present cells, code and facts, by name; the fullest profile if several."""
    found = {}
    for job in (job for profile in paths.PROFILES for job in jobs(profile)):
        if job.why() is None:
            origin = f"executed here, profile {job.profile}, {job.last()['seconds']:.0f} s"
            found[job.name] = job.executed, origin
    return found


def run_all(todo: list[Job], force: bool = False) -> list[Outcome]:
    """Run what has to run. One notebook's failure does not stop the others."""
    outcomes = []
    for number, job in enumerate(todo, start=1):
        why, name = "forced" if force else job.why(), f"[{number}/{len(todo)}] {job.name}"
        if why:
            print(f"{name}: running, profile {job.profile} ({why})", flush=True)
            outcomes.append(_run(job, force))
            print(f"{name}: {outcomes[-1].status} after {outcomes[-1].seconds:.0f} s", flush=True)
        else:
            print(f"{name}: unchanged", flush=True)
            outcomes.append(Outcome(job, "unchanged", job.last()["seconds"], job.last()["products"]))
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
            lines += ["", f"FAILED: {outcome.job.name}", textwrap.indent(outcome.error, "  ")]
            lines.append(f"  as executed: {paths.relative(outcome.job.executed)}")
    verdicts = compared(outcomes)
    lines += ["", *(str(verdict) for verdict in verdicts if not verdict.agrees)]
    if verdicts:
        lines += [f"published runs: {compare.said(verdicts)}", *_how_computed(outcomes)]
    return "\n".join([*lines, f"all of it is under {paths.local()}"])


def _told(outcomes: list[Outcome]) -> dict[str, dict[str, Any]]:
    """Return what was told of each run, and whether this command computed it ("now").

    Several notebooks may ask for a run: the first computes it, the others load it.
    """
    told: dict[str, dict[str, Any]] = {}
    for outcome in outcomes:
        for line in outcome.products:
            if line["kind"] == "run":
                now = line["how"] == "computed" and outcome.status != "unchanged"
                first = told.setdefault(line["what"], line | {"now": now})
                if now:
                    first |= line | {"now": True}
    return told


def compared(outcomes: list[Outcome]) -> list[compare.Comparison]:
    """Return how the published runs fared that this code computed here again; what was kept is not among them."""
    return [compare.Comparison(**line["compared"]) for line in _told(outcomes).values() if line.get("compared")]


def _how_computed(outcomes: list[Outcome]) -> list[str]:
    """Return lines on what was computed because code changed, on what was not computed now, and on what was kept."""
    told = _told(outcomes)
    reasons = Counter(line["why"] for line in told.values() if line["now"])
    lines = [f"  computed again: {count} ({why})" for why, count in reasons.items() if why.startswith(CODE_CHANGED)]
    earlier = sum(not line["now"] for line in told.values() if line.get("compared"))
    if earlier:
        lines.append(f"  computed by an earlier command, with the same code: {earlier}")
    kept = {name: line for name, line in told.items() if line["how"] == "kept"}
    return [*lines, *(f"  kept, not recomputed: {name} ({line['why']})" for name, line in kept.items())]


def _run(job: Job, force: bool) -> Outcome:
    job.executed.parent.mkdir(parents=True, exist_ok=True)
    job.state.unlink(missing_ok=True)
    state = {"content": job.content(), "code": job.code}
    asked = {"SIB_RECOMPUTE": "1" if job.profile == "quick" else "", "SIB_FORCE": "1" if force else ""}
    shown = {"stdout_file": _below(sys.stdout), "stderr_file": _below(sys.stderr), "on_cell_start": _say_cell}
    done = execute(job.notebook, job.executed, job.parameters, asked, **shown)
    products = list({(line["kind"], line["what"]): line for line in done.told}.values())
    if done.error is None:
        state |= {"seconds": done.seconds, "products": products}
        write_atomically(job.state, json.dumps(state, indent=1).encode())
    return Outcome(job, "FAILED" if done.error else "done", done.seconds, products, done.error)


def _say_cell(cell: Any, cell_index: int) -> None:
    """Which cell it is at: a line each, as readable in a log file as in a terminal."""
    if cell.cell_type == "code":
        lines = [line for line in cell.source.splitlines() if line.strip()]
        telling = [line for line in lines if not line.startswith(("#", "%", "import", "from"))]
        print(f"  cell {cell_index + 1}: {(telling or lines or [''])[0][:80]}", flush=True)


def _below(stream: TextIO) -> SimpleNamespace:
    """Shows a notebook's own output in `stream`, below its cell's line."""

    def write(text: str) -> None:
        stream.write("".join(f"    {line}\n" for line in text.splitlines() if line.strip()))

    return SimpleNamespace(write=write, flush=stream.flush)
