"""Sweeps on a Dask cluster of two worker processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading

import distributed
import pandas as pd
import pytest
import tiny_notebooks as tiny

from sibrepro import __main__, paths
from sibrepro.facts import local
from sibrepro.run.notebook import Notebook
from sibrepro.run.sweep import run
from sibrepro.run.sweep.point import Point, read, work

pytestmark = pytest.mark.exhaustive

WAIT = """
from pathlib import Path
import time
while not Path({folder!r}, "go").exists(): time.sleep(0.1)
"""


@pytest.fixture
def workers(tmp_path):
    """A scheduler's address and two workers, all on the loopback interface; nobody restarts a worker that dies."""
    options = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--local-directory", str(tmp_path)]
    with distributed.LocalCluster(n_workers=0, dashboard_address=None, host="127.0.0.1") as made:
        address = made.scheduler_address
        command = [sys.executable, "-m", "distributed.cli.dask_worker", address, *options]
        started = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
        yield address, started
        for process in started:
            process.kill()
            process.wait()


def test_a_killed_worker_s_point_is_executed_by_another_and_no_row_is_missing(workers, tmp_path, capfd):
    address, (first, _) = workers
    notebook = tiny.write(tmp_path, tiny.COUNT, WAIT, tiny.RECORD)
    for a in (1, 2, 3):
        tiny.record_of(a)

    def kill_one_while_both_work() -> None:
        tiny.until(lambda: len(tiny.executed(tmp_path)) == 2)
        first.kill()
        (tmp_path / "go").touch()

    killer = threading.Thread(target=kill_one_while_both_work)
    killer.start()
    assert __main__.main(["sweep", str(notebook), "-g", "a=1:4", "--dask", address]) == 0
    killer.join()
    rows = pd.read_csv(paths.local() / "sweeps" / "tiny" / "table.csv")
    assert sorted(zip(rows["a"], rows["double"], strict=True)) == [(1, 2.0), (2, 4.0), (3, 6.0)]
    times = tiny.executed(tmp_path)
    assert set(times) == {"1", "2", "3"}
    assert len(times) == 4, "the killed worker's point was started twice, no other"
    assert capfd.readouterr().out.count("\ndone     a=") == 3


def test_files_of_a_worker_that_does_not_share_the_folder_come_back_through_the_scheduler(tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    monkeypatch.setenv("SIB_OUTPUT", str(there))
    tiny.record_of(3)
    point = Point("tiny", Notebook.read(tiny.write(tmp_path, tiny.RECORD)), {"a": 3}, ("a",))
    with distributed.Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        future = client.submit(work, point, str(here), "no such mark", slots=1)
        _, files = future.result()
        shutil.rmtree(there)
        monkeypatch.setenv("SIB_OUTPUT", str(here))
        written = []
        write = run.write_atomically
        monkeypatch.setattr(run, "write_atomically", lambda path, text: (written.append(path), write(path, text)))
        result = run.collect(future, point)
        received = len(written)
        run.collect(future, point)
    assert len(files) == received
    assert result.metrics == {"double": 6.0}
    assert read(point.file(".ipynb")) == result
    assert local.read(here / "runs" / result.runs[0]).metrics["double"] == 6.0
    assert written[received - 1] == point.file(".ipynb"), "what makes the point count comes last"
    assert [path.name for path in written if path.parent.parent.name == "runs"][-1] == local.DONE, "so in a run"
    assert all("runs" not in path.parts for path in written[received:]), "a run that is here stays"


def test_a_scheduler_that_does_not_answer_is_an_error_that_says_so(tmp_path, capsys, monkeypatch):
    real = distributed.Client
    monkeypatch.setattr(distributed, "Client", lambda address, timeout: real(address, timeout=0.5))
    notebook = tiny.write(tmp_path)
    assert __main__.main(["sweep", str(notebook), "-g", "a=1", "--dask", "tcp://127.0.0.1:9"]) == 2
    assert "no scheduler answers there" in capsys.readouterr().err


def test_threads_are_shared_by_the_workers_of_one_machine():
    addresses = {"tcp://10.0.0.1:1": 1, "tcp://10.0.0.1:2": 2, "tcp://10.0.0.2:1": 1}
    assert run.slots(addresses) == 3
    assert run.slots({}) == 1
