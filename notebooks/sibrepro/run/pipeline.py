"""`sib run`: execute the notebooks with papermill. `./run_all.sh` calls this after it has made the environment.

Each notebook is executed with the parameters of the chosen profile into `results/local/executed/<profile>/`. A state
file beside it records what it was executed with. A notebook is not executed again as long as its cells, its parameters,
the published facts and the code that it reaches stay the same and the files it wrote are still there.

The quick profile computes published runs again and compares them. The summary says how many agree.
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
from sibrepro.facts.record import todays_name
from sibrepro.run.notebook import code_of, execute

CODE_CHANGED = "code changed"  # begins the reason why a run was computed again


@dataclasses.dataclass(frozen=True)
class Job:
    """A notebook to be executed with the parameters of a profile."""

    notebook: Path
    profile: str
    parameters: dict[str, Any]

    @property
    def name(self) -> str:
        """Return the notebook's name, such as "03_few_shot_tables"."""
        return self.notebook.stem

    @property
    def executed(self) -> Path:
        """Return where the executed notebook is written."""
        return paths.local() / "executed" / self.profile / self.notebook.name

    @property
    def state(self) -> Path:
        """Return the state file of the last successful execution."""
        return self.executed.with_suffix(".json")

    @property
    def code(self) -> fingerprint.Hashes:
        """Return the hash of every module that the notebook can reach."""
        return code_of(self.name, self._cells())

    def content(self) -> str:
        """Return a hash of the notebook's cells, its parameters and the published facts."""
        parts = [*(cell.source for cell in self._cells()), json.dumps(self.parameters, sort_keys=True), _facts()]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def last(self) -> dict[str, Any] | None:
        """Return the content of the state file, or None if there is none or it is damaged."""
        try:
            state = parse_json(self.state.read_text(encoding="utf-8"))
            return state if {"content", "code", "seconds", "products"} <= set(state) else None
        except (OSError, ValueError, TypeError):
            return None

    def why(self) -> str | None:
        """Return why the notebook has to be executed, or None if nothing changed."""
        last = self.last()
        if last is None:
            return "first run"
        if last["content"] != self.content():
            return "its cells, parameters or facts changed"
        if changes := fingerprint.changed(last["code"], self.code):
            return f"code changed: {fingerprint.listed(changes)}"
        written = [paths.local() / product["what"] for product in last["products"] if product["kind"] != "run"]
        for path in (self.executed, *written):
            if not path.exists():
                return f"{paths.relative(path)} is gone"
        return None

    def _cells(self) -> list[nbformat.NotebookNode]:
        return nbformat.read(self.notebook, as_version=4).cells


@functools.cache
def _facts() -> str:
    """Return a hash of the published facts and of the checksums of the other published files."""
    digest = hashlib.sha256()
    for file in [*sorted((paths.published() / "facts").glob("*.jsonl")), paths.published() / "SHA256SUMS"]:
        if file.is_file():
            digest.update(f"{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What happened to a notebook.

    Attributes:
        job: the notebook.
        status: "done", "unchanged" or "FAILED".
        seconds: how long its last execution took.
        products: what that execution reported: runs, figures and tables, see `sibrepro.facts.manifest`.
        error: what failed and in which cell, or None.
    """

    job: Job
    status: str
    seconds: float
    products: list[dict[str, Any]]
    error: str | None = None


def main(options: argparse.Namespace) -> int:
    """Run the notebooks. Return 1 if one of them failed, or if a run disagrees with the published one."""
    todo = jobs(options.profile, options.only)
    if options.keep:
        os.environ[fingerprint.KEEP] = ",".join(map(todays_name, options.keep))
    if options.list:
        for job in todo:
            why = "forced" if options.force else job.why()
            print(f"{job.name:<40} {f'would run ({why})' if why else 'unchanged'}")
        return 0
    outcomes = run_all(todo, options.force)
    print(summary(outcomes))
    if options.report:
        report(options)
    agree = all(verdict.agrees for verdict in compared(outcomes))
    return 0 if agree and not any(outcome.error for outcome in outcomes) else 1


def report(options: argparse.Namespace) -> int:
    """Build the documentation from the published facts and from the notebooks executed here."""
    print(f"Documentation: {site.build(options.out, executed(), reference=True)}")
    return 0


def jobs(profile: str, only: Iterable[str] = ()) -> list[Job]:
    """Return the notebooks in order.

    Args:
        profile: whose parameters to use.
        only: numbers or parts of names, alone or separated by commas. All notebooks if it is empty.
    """
    notebooks = sorted(paths.notebooks().glob("[0-9][0-9]_*.ipynb"))
    wanted = [word for entry in only for word in entry.split(",") if word]
    for word in wanted:
        if not any(word in notebook.stem for notebook in notebooks):
            names = "\n  ".join(notebook.stem for notebook in notebooks)
            raise ValueError(f"--only {word}: there is no such notebook. There are\n  {names}")
    if wanted:
        notebooks = [notebook for notebook in notebooks if any(word in notebook.stem for word in wanted)]
    return [Job(notebook, profile, params.of_profile(profile, notebook.stem)) for notebook in notebooks]


def executed() -> dict[str, tuple[Path, str]]:
    """Return the notebooks that were executed here with the present cells, code and facts.

    Returns:
        The executed file by the notebook's name, with a text for readers that says how it was made. If a notebook was
        executed in several profiles, the largest one counts.
    """
    found = {}
    for profile in paths.PROFILES:
        for job in jobs(profile):
            if job.why() is None:
                origin = f"executed here, profile {job.profile}, {job.last()['seconds']:.0f} s"
                found[job.name] = job.executed, origin
    return found


def run_all(todo: list[Job], force: bool = False) -> list[Outcome]:
    """Execute the notebooks that have to be executed. If one fails, the others are executed all the same.

    Args:
        todo: the notebooks.
        force: whether to execute also those that did not change, and to compute all their runs again.
    """
    outcomes = []
    for number, job in enumerate(todo, start=1):
        name = f"[{number}/{len(todo)}] {job.name}"
        why = "forced" if force else job.why()
        if why:
            print(f"{name}: running, profile {job.profile} ({why})", flush=True)
            outcome = _run(job, force)
            print(f"{name}: {outcome.status} after {outcome.seconds:.0f} s", flush=True)
        else:
            print(f"{name}: unchanged", flush=True)
            last = job.last()
            outcome = Outcome(job, "unchanged", last["seconds"], last["products"])
        outcomes.append(outcome)
    return outcomes


def summary(outcomes: list[Outcome]) -> str:
    """Return the summary of a command.

    For each notebook it says how long it took and which files it wrote. Then it names what failed and which recomputed
    runs disagree with the published ones. The end counts these runs.
    """
    lines = ["", "Summary"]
    for outcome in outcomes:
        lines.append(f"  {outcome.job.name:<40} {outcome.status:<10} {outcome.seconds:6.1f} s")
        files = [product["what"] for product in outcome.products if product["kind"] in ("figure", "table")]
        if outcome.job.executed.exists():
            files.insert(0, paths.relative(outcome.job.executed))
        lines += [f"      {file}" for file in dict.fromkeys(files)]
    for outcome in outcomes:
        if outcome.error:
            lines += ["", f"FAILED: {outcome.job.name}", textwrap.indent(outcome.error, "  ")]
            lines.append(f"  executed notebook: {paths.relative(outcome.job.executed)}")
    verdicts = compared(outcomes)
    lines += ["", *(str(verdict) for verdict in verdicts if not verdict.agrees)]
    lines.append(f"All files are in {paths.local()}")
    if verdicts:
        lines += [compare.said(verdicts), *_how_computed(outcomes)]
    return "\n".join(lines)


def _told(outcomes: list[Outcome]) -> dict[str, dict[str, Any]]:
    """Return what notebooks reported of each run, and as "now" whether this command computed it.

    If several notebooks ask for a run, the first computes it and the others load it. The first report counts then.
    """
    told: dict[str, dict[str, Any]] = {}
    for outcome in outcomes:
        for line in outcome.products:
            if line["kind"] == "run":
                now = line["how"] == "computed" and outcome.status != "unchanged"
                if now or line["what"] not in told:
                    told[line["what"]] = line | {"now": now}
    return told


def compared(outcomes: list[Outcome]) -> list[compare.Comparison]:
    """Return a comparison for each published run that the present code computed here, now or earlier."""
    return [compare.Comparison(**line["compared"]) for line in _told(outcomes).values() if line.get("compared")]


def _how_computed(outcomes: list[Outcome]) -> list[str]:
    """Return lines that say which runs were recomputed because code changed, computed earlier, or kept by the user."""
    told = _told(outcomes)
    reasons = Counter(line["why"] for line in told.values() if line["now"])
    lines = [f"  recomputed: {count} ({why})" for why, count in reasons.items() if why.startswith(CODE_CHANGED)]
    earlier = sum(not line["now"] for line in told.values() if line.get("compared"))
    if earlier:
        lines.append(f"  computed by an earlier command with the same code: {earlier}")
    for name, line in told.items():
        if line["how"] == "kept":
            lines.append(f"  kept, not recomputed: {name} ({line['why']})")
    return lines


def _run(job: Job, force: bool) -> Outcome:
    """Execute a notebook, and write its state file if it succeeds."""
    job.executed.parent.mkdir(parents=True, exist_ok=True)
    job.state.unlink(missing_ok=True)
    state = {"content": job.content(), "code": job.code}
    done = execute(
        job.notebook,
        job.executed,
        job.parameters,
        {"SIB_RECOMPUTE": "1" if job.profile == "quick" else "", "SIB_FORCE": "1" if force else ""},
        stdout_file=_below(sys.stdout),
        stderr_file=_below(sys.stderr),
        on_cell_start=_say_cell,
    )
    products = list({(line["kind"], line["what"]): line for line in done.told}.values())
    if done.error is None:
        state |= {"seconds": done.seconds, "products": products}
        write_atomically(job.state, json.dumps(state, indent=1).encode())
    return Outcome(job, "FAILED" if done.error else "done", done.seconds, products, done.error)


def _say_cell(cell: Any, cell_index: int) -> None:
    """Print the number and the first telling line of a cell that starts, so that a log shows the progress."""
    if cell.cell_type == "code":
        lines = [line for line in cell.source.splitlines() if line.strip()]
        telling = [line for line in lines if not line.startswith(("#", "%", "import", "from"))]
        print(f"  cell {cell_index + 1}: {(telling or lines or [''])[0][:80]}", flush=True)


def _below(stream: TextIO) -> SimpleNamespace:
    """Return a file-like object that writes a notebook's output to `stream`, indented below the line of its cell."""

    def write(text: str) -> None:
        stream.write("".join(f"    {line}\n" for line in text.splitlines() if line.strip()))

    return SimpleNamespace(write=write, flush=stream.flush)
