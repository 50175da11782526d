"""Executing one point in processes of its own, which can hang, crash or be killed without harm to the rest."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from filelock import FileLock

from sibrepro.facts import manifest, runs
from sibrepro.run.sweep.child import kill_tree
from sibrepro.run.sweep.point import Point, Result, cell_seconds, metrics, read_result

THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one point may use."""

    threads: int
    timeout: float | None = None  # seconds


class Attempt:
    """A point being executed. `filelock.Timeout` if another process is at it.

    What it writes stands apart until the end; then the executed notebook is moved to its place and, last of all, the
    result is written. A point whose result is there already, because another sweep was faster, is not executed.
    """

    def __init__(self, point: Point, output: Path, limits: Limits) -> None:
        self.point, self.output, self.limits = point, output, limits
        self.files = point.files(output)
        self.files.running.mkdir(parents=True, exist_ok=True)
        self.lock = FileLock(self.files.running / f"{point.name}.lock")
        self.lock.acquire(blocking=False)
        self.started = time.monotonic()
        self.process: subprocess.Popen | None = None
        self.result = read_result(self.files.result)
        if self.result is None:
            self._start()

    def _start(self) -> None:
        for left in self.files.running.glob(f"{self.point.name}.*/"):  # by one that was killed
            shutil.rmtree(left, ignore_errors=True)
        self.scratch = Path(tempfile.mkdtemp(dir=self.files.running, prefix=f"{self.point.name}."))
        self.sockets = tempfile.mkdtemp(prefix="sib-")  # not in `scratch`: a socket's path has to be short
        with self.files.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sibrepro.run.sweep.child"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=self._environment(),
                start_new_session=True,  # Ctrl-C is for the sweep, which then ends its points
            )
        papermill = {
            "notebook": self.point.notebook.text,
            "output": str(self.scratch / "executed.ipynb"),
            "parameters": self.point.given,
            "sockets": self.sockets,
        }
        task = {"papermill": papermill, "outcome": str(self.scratch / "outcome.json")}
        with contextlib.suppress(BrokenPipeError):  # it could not even start; its log says why
            self.process.stdin.write(json.dumps(task).encode() + b"\n")
            self.process.stdin.flush()  # and it stays open: its end would tell the child that this process is gone

    def poll(self) -> Result | None:
        """The result, once there is one."""
        if self.result is None and self.process.poll() is not None:
            self._finish(self._error())
        elif self.result is None and self.limits.timeout and self._seconds() > self.limits.timeout:
            kill_tree(self.process.pid)
            self.process.wait()
            self._finish(f"timeout: not finished after {self.limits.timeout:g} s")
        if self.result:
            self.lock.release()
        return self.result

    def wait(self) -> Result:
        try:
            while self.poll() is None:
                time.sleep(0.1)
        finally:
            self.stop()
        return self.result

    def stop(self) -> None:
        """End it now, if it is not finished; nothing is recorded."""
        if self.result is None:
            kill_tree(self.process.pid)
            self.process.wait()
            self._clean()
            self.lock.release()

    def _finish(self, error: str | None) -> None:
        executed = self.scratch / "executed.ipynb"
        cells, records = [], []
        try:
            cells = json.loads(executed.read_text(encoding="utf-8"))["cells"]
            told = [line["path"] for line in manifest.read(self.scratch / "manifest") if line["kind"] == "run"]
            records = [runs.load(self.output / path) for path in dict.fromkeys(told)]
        except (OSError, ValueError) as problem:  # a file half written when it was killed, or a run that failed
            error = error or f"{type(problem).__name__}: {problem}"
        if executed.exists():
            executed.replace(self.files.executed)
        result = Result(
            point=self.point.name,
            notebook=self.point.notebook.name,
            parameters=self.point.parameters,
            error=error,
            seconds=round(self._seconds(), 3),
            cell_seconds=cell_seconds(cells),
            metrics=metrics(records),
            runs=[record.id for record in records],
            fingerprint=self.point.fingerprint,
        )
        result.write(self.files.result)
        self._clean()
        self.result = result

    def _clean(self) -> None:
        for folder in (self.scratch, self.sockets):
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def _error(self) -> str | None:
        outcome = self.scratch / "outcome.json"
        if self.process.returncode == 0 and outcome.exists():
            return json.loads(outcome.read_text(encoding="utf-8"))["error"]
        last = self.files.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        return " ".join([f"its process ended with code {self.process.returncode}", *last])

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **dict.fromkeys(THREADS, str(self.limits.threads)),
            "SIB_OUTPUT": str(self.output),
            "SIB_FIGURES": str(self.files.figures),
            "SIB_MANIFEST": str(self.scratch / "manifest"),
        }

    def _seconds(self) -> float:
        return time.monotonic() - self.started


def cores() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
