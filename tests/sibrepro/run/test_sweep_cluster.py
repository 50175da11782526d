"""Sweeps on a Dask cluster of two worker processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading

import pandas as pd
import pytest
import tiny_notebooks as tiny

from sibrepro import __main__, paths
from sibrepro.facts import runs
from sibrepro.run.sweep import cluster, grid
from sibrepro.run.sweep.attempt import Limits
from sibrepro.run.sweep.point import Point, read_result

distributed = pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
LIMITS = Limits(threads=1, timeout=120)


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
    rows = pd.read_csv(paths.results() / "sweeps" / "tiny" / "table.csv")
    assert sorted(zip(rows["a"], rows["double"], strict=True)) == [(1, 2.0), (2, 4.0), (3, 6.0)]
    times = tiny.executed(tmp_path)
    assert set(times) == {"1", "2", "3"}
    assert len(times) == 4, "the killed worker's point was started twice, no other"
    assert "done 3/3, running 0, failed 0" in capfd.readouterr().out


def order(tmp_path, output, mark) -> cluster.Order:
    notebook = grid.Notebook.read(tiny.write(tmp_path, tiny.RECORD))
    return cluster.Order(Point("tiny", notebook, {"a": 3}, ("a",)), str(output), str(mark), 1, LIMITS, True)


def test_files_of_a_worker_that_does_not_share_the_folder_come_back_through_the_scheduler(tmp_path, monkeypatch):
    client, worker = tmp_path / "client", tmp_path / "worker"
    monkeypatch.setenv("SIB_OUTPUT", str(worker))
    tiny.record_of(3)
    asked = order(tmp_path, client, client / "no such mark")
    result, contents = cluster.execute_here(asked, LIMITS)
    assert result.metrics == {"double": 6.0}
    shutil.rmtree(worker)

    monkeypatch.setenv("SIB_OUTPUT", str(client))
    written = []
    write = cluster.write_atomically
    monkeypatch.setattr(cluster, "write_atomically", lambda path, content: (written.append(path), write(path, content)))
    cluster.receive(contents, client)
    files = asked.point.files(client)
    assert read_result(files.result) == result
    assert files.executed.is_file()
    assert runs.load(client / "results" / "runs" / result.runs[0]).metrics["double"] == 6.0
    assert written[-1] == files.result, "what makes the point count comes last"
    assert written[-2].name == runs.DONE, "and what makes the run count after its files"
    cluster.receive(contents, client)
    assert runs.DONE not in {path.name for path in written[len(contents) :]}, "a run that is here stays"


def test_a_scheduler_that_does_not_answer_is_an_error_that_says_so(tmp_path, capsys, monkeypatch):
    real = distributed.Client
    monkeypatch.setattr(distributed, "Client", lambda address, timeout: real(address, timeout=0.5))
    notebook = tiny.write(tmp_path)
    assert __main__.main(["sweep", str(notebook), "-g", "a=1", "--dask", "tcp://127.0.0.1:9"]) == 2
    assert "no scheduler answers there" in capsys.readouterr().err


def test_threads_are_shared_by_the_workers_of_one_machine():
    addresses = {"tcp://10.0.0.1:1": 1, "tcp://10.0.0.1:2": 2, "tcp://10.0.0.2:1": 1}
    assert cluster._slots(addresses) == 3
    assert cluster._slots({}) == 1
