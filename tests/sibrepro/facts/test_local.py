from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest
from made_up import run

from sibcore.files import write_atomically
from sibcore.fingerprint import digest
from sibrepro import paths
from sibrepro.facts import Experiment, local, manifest

FORK = multiprocessing.get_context("fork")
PARAMS = {"n": 3, "seed": 7, "eta": 1e-3}


def compute(params):
    """Leaves a mark each time it runs, so that tests can count."""
    with (paths.local() / "computed").open("a") as file:
        file.write("x")
    return {"answer": params["n"] * 2.0}, {"curve": np.arange(params["n"], dtype=np.float32)}


EXPERIMENT = Experiment("experiment", dict, compute)


def slow(params):
    time.sleep(0.3)
    return compute(params)


@pytest.fixture(autouse=True)
def output(scratch):
    paths.local().mkdir(parents=True)


def times_computed() -> int:
    return len((paths.local() / "computed").read_text())


def finished() -> list[str]:
    """The runs that count as results."""
    folders = (paths.local() / "runs").glob("*")
    return [folder.name for folder in folders if folder.is_dir() and local._damage(folder) is None]


def test_a_run_is_computed_once_and_then_loaded_with_the_same_content():
    first = run(EXPERIMENT, PARAMS, compute)
    second = run(EXPERIMENT, PARAMS, compute)
    assert times_computed() == 1
    assert second.metrics == {"answer": 6.0}
    np.testing.assert_array_equal(second.arrays["curve"], [0, 1, 2])
    assert second.provenance == first.provenance


def test_a_record_says_how_it_was_made():
    record = run(EXPERIMENT, PARAMS, compute, data={"cifar": "abc"})
    about = record.provenance
    assert record.params == PARAMS
    assert about["seed"] == 7
    assert about["data"] == {"cifar": "abc"}
    assert about["versions"]["torch"]
    assert about["wall_seconds"] >= 0
    assert {"commit", "dirty", "device", "processor", "finished"} <= set(about)
    assert sorted(path.name for path in local.folder_of(record.id).iterdir()) == sorted(
        ["params.json", "provenance.json", "code.json", "metrics.json", "arrays.safetensors", "done"]
    )


def test_changed_data_or_force_compute_again(monkeypatch):
    run(EXPERIMENT, PARAMS, compute, data={"d": "1"})
    run(EXPERIMENT, PARAMS, compute, data={"d": "2"})
    assert times_computed() == 2
    monkeypatch.setattr(local, "_computed_here", set())
    monkeypatch.setenv("SIB_FORCE", "1")
    run(EXPERIMENT, PARAMS, compute, data={"d": "2"})
    run(EXPERIMENT, PARAMS, compute, data={"d": "2"})  # once per process is enough
    assert times_computed() == 3


def test_a_long_run_goes_on_from_what_it_left_in_its_folder_and_that_becomes_part_of_the_record():
    def counts(params, folder):
        steps = int((folder / "checkpoint").read_text()) if (folder / "checkpoint").exists() else 0
        write_atomically(folder / "checkpoint", str(steps + 1).encode())
        if steps < 2:
            raise KeyboardInterrupt
        return {"steps": steps + 1}, {}

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(EXPERIMENT, PARAMS, counts, keeps_files=True)
        assert finished() == []
    record = run(EXPERIMENT, PARAMS, counts, keeps_files=True)
    assert record.metrics == {"steps": 3}
    (local.folder_of(record.id) / "checkpoint").write_text("broken")
    with pytest.raises(ValueError, match="damaged: checkpoint"):
        local.read(local.folder_of(record.id))


@pytest.mark.parametrize("name", ["metrics.json", "arrays.safetensors", "params.json", "done"])
def test_a_damaged_file_is_noticed_and_the_run_redone(name):
    record = run(EXPERIMENT, PARAMS, compute)
    file = local.folder_of(record.id) / name
    file.write_bytes(file.read_bytes()[:-3] + b"??}")
    with pytest.raises(ValueError, match="not a finished run"):
        local.read(local.folder_of(record.id))
    assert run(EXPERIMENT, PARAMS, compute).metrics == {"answer": 6.0}
    assert times_computed() == 2


def test_a_failing_computation_leaves_nothing_behind():
    def fail(params):
        raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        run(EXPERIMENT, PARAMS, fail)
    assert [p.name for p in (paths.local() / "runs").iterdir() if p.suffix != ".lock"] == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_diverged_is_a_result_and_no_number(value):
    record = run(EXPERIMENT, PARAMS, lambda params: ({"loss": value, "steps": 3}, {}))
    assert math.isnan(record.metrics.pop("loss"))
    assert record.metrics == {"steps": 3}
    assert "NaN" not in (paths.local() / "runs" / record.id / "metrics.json").read_text()


def test_processes_that_ask_at_the_same_time_compute_once_and_all_get_the_record():
    answers = FORK.Queue()

    def ask():
        answers.put(run(EXPERIMENT, PARAMS, slow).metrics["answer"])

    processes = [FORK.Process(target=ask) for _ in range(4)]
    for process in processes:
        process.start()
    assert [answers.get(timeout=60) for _ in processes] == [6.0] * 4
    for process in processes:
        process.join()
    assert times_computed() == 1


@pytest.mark.parametrize("file_number", [1, 2, 3, 4, 5, 6])
def test_a_kill_in_the_middle_of_any_write_leaves_no_result_and_the_next_process_recovers(file_number):
    ready = FORK.Event()

    def die_while_writing():
        real, written = os.fsync, []

        def fsync(handle):
            written.append(handle)
            if len(written) == file_number:
                ready.set()
                time.sleep(60)
            real(handle)

        os.fsync = fsync
        run(EXPERIMENT, PARAMS, compute)

    process = FORK.Process(target=die_while_writing)
    process.start()
    assert ready.wait(60)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    folder = local.folder_of(EXPERIMENT.id(PARAMS))
    assert not (folder / "done").exists()
    assert finished() == []
    assert run(EXPERIMENT, PARAMS, compute).metrics == {"answer": 6.0}
    assert not list(folder.glob("*.tmp")) + list(folder.glob(".*.tmp"))


def test_a_kill_while_redoing_a_run_does_not_leave_the_old_record_looking_valid_with_new_parts():
    run(EXPERIMENT, PARAMS, compute, data={"d": "old"})
    ready = FORK.Event()

    def die():
        def hang(params):
            ready.set()
            time.sleep(60)

        run(EXPERIMENT, PARAMS, hang, data={"d": "new"})

    process = FORK.Process(target=die)
    process.start()
    assert ready.wait(60)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert finished() == []


def test_atomic_writes_replace_the_whole_file_and_clean_up_after_an_error(monkeypatch, tmp_path):
    target = tmp_path / "folder" / "file"
    write_atomically(target, b"old")
    write_atomically(target, b"new")
    assert target.read_bytes() == b"new"
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomically(target, b"newer")
    assert target.read_bytes() == b"new"
    assert [p.name for p in target.parent.iterdir()] == ["file"]


def test_runs_are_noted_for_whoever_runs_the_notebook(monkeypatch, tmp_path):
    monkeypatch.setenv("SIB_MANIFEST", str(tmp_path / "manifest"))
    run(EXPERIMENT, PARAMS, compute)
    run(EXPERIMENT, PARAMS, compute)
    assert [line["how"] for line in manifest.read(tmp_path / "manifest")] == ["computed", "loaded"]


def test_done_holds_the_hash_of_every_file():
    folder = local.folder_of(run(EXPERIMENT, PARAMS, compute).id)
    done = json.loads((folder / "done").read_text())
    assert set(done) == {"params.json", "provenance.json", "code.json", "metrics.json", "arrays.safetensors"}


def test_a_finished_run_can_be_read_where_nothing_can_be_written():
    name = run(EXPERIMENT, PARAMS, compute).id
    folder = local.folder_of(name)
    for path in (folder, folder.parent):
        path.chmod(0o500)
    try:
        assert run(EXPERIMENT, PARAMS, compute).metrics == {"answer": 6.0}
        assert times_computed() == 1
    finally:
        for path in (folder.parent, folder):
            path.chmod(0o755)


@pytest.mark.parametrize("content", ["5", "[]", "null", "{", '{"params.json": 3}'])
def test_a_senseless_done_is_no_result_and_no_crash(content):
    name = run(EXPERIMENT, PARAMS, compute).id
    (local.folder_of(name) / "done").write_text(content)
    assert run(EXPERIMENT, PARAMS, compute).metrics == {"answer": 6.0}
    assert times_computed() == 2


def test_folders_and_dangling_links_inside_a_run_do_no_harm():
    folder = local.folder_of(run(EXPERIMENT, PARAMS, compute).id)
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / "nowhere").symlink_to(folder / "not there")
    assert run(EXPERIMENT, PARAMS, compute).metrics == {"answer": 6.0}
    assert times_computed() == 1


def test_time_spent_before_is_counted():
    assert run(EXPERIMENT, PARAMS, compute, spent=100.0).provenance["wall_seconds"] >= 100


def test_another_version_computes_again():
    run(EXPERIMENT, PARAMS, compute)
    assert run(EXPERIMENT, PARAMS, compute, version=2).version == 2
    assert times_computed() == 2


def test_a_stopped_run_goes_on_only_with_the_code_and_data_that_began_it(monkeypatch):
    def counts(params, folder):
        steps = int((folder / "checkpoint").read_text()) if (folder / "checkpoint").exists() else 0
        write_atomically(folder / "checkpoint", str(steps + 1).encode())
        if steps < 1:
            raise KeyboardInterrupt
        return {"steps": steps + 1}, {}

    def stopped(version=1, **data):
        with pytest.raises(KeyboardInterrupt):
            run(EXPERIMENT, PARAMS, counts, data=data, keeps_files=True, version=version)

    stopped()
    stopped(d="other")
    stopped(version=2, d="other")
    monkeypatch.setattr(Experiment, "code", {"sibcore.xi": "changed"})
    stopped(version=2, d="other")
    record = run(EXPERIMENT, PARAMS, counts, data={"d": "other"}, keeps_files=True, version=2)
    assert record.metrics == {"steps": 2}, "the last of them goes on"
    assert record.provenance["fingerprint"] == digest({"sibcore.xi": "changed"})


def test_what_only_a_stopped_run_needs_goes_when_it_is_done():
    def keeps(params, folder):
        write_atomically(folder / "state", b"of a training")
        write_atomically(folder / "network", b"trained")
        return {"answer": 1.0}, {}

    folder = local.folder_of(run(EXPERIMENT, PARAMS, keeps, keeps_files=True, state="state").id)
    assert (folder / "network").is_file()
    assert not (folder / "state").exists()
    (folder / "state").touch()  # as a kill after `done` would leave it
    assert run(EXPERIMENT, PARAMS, keeps, keeps_files=True, state="state").metrics == {"answer": 1.0}


def test_a_run_with_a_stray_folder_inside_can_be_computed_again():
    folder = local.folder_of(run(EXPERIMENT, PARAMS, compute).id)
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / "nowhere").symlink_to(folder / "not there")
    assert run(EXPERIMENT, PARAMS, compute, data={"d": "new"}).metrics == {"answer": 6.0}
