"""Two users of one machine share a cache and a folder of results: nothing is lost, nobody waits without need."""

from __future__ import annotations

import grp
import os
import sys
import time

import made_up
import numpy as np
import pytest
from killing import FORK
from tiny_images import plain, png, write_files

from sibcore import datasets
from sibrepro import paths
from sibrepro.facts import Experiment, provenance

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can become two other users"),
]

GROUP = grp.getgrall()[-1].gr_gid
ALICE, BOB = 61001, 61002


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """Folders of a group, as `chmod g+rwxs` makes them; all that leads there may be entered."""
    for parent in [tmp_path, *tmp_path.parents][:4]:  # of this test, process, session and user
        parent.chmod(parent.stat().st_mode | 0o011)
    for name in ("output", "cache"):
        folder = tmp_path / name
        folder.mkdir()
        os.chown(folder, ALICE, GROUP)
        folder.chmod(0o2770)
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    provenance.collect({}, 0)  # imports what it needs now: other users may not enter the home of root's Python
    write_files(tmp_path / "pictures", {f"{c}/{i}.png": png(plain(i)) for c in "abc" for i in range(3)})
    (tmp_path / "pictures" / "splits.yaml").write_text("train: [a]\nval: [b]\ntest: [c]\n")
    return tmp_path


class User:
    """Work of a user of the group, in a process of theirs."""

    def __init__(self, uid, work):
        self.answers, theirs = FORK.Pipe(duplex=False)

        def child():
            os.setgroups([])
            os.setgid(GROUP)
            os.setuid(uid)
            os.umask(0o002)
            sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
            try:
                theirs.send(work())
            except BaseException as error:
                theirs.send(f"{type(error).__name__}: {error}")

        self.process = FORK.Process(target=child)
        self.process.start()

    def answer(self):
        assert self.answers.poll(120)
        found = self.answers.recv()
        self.process.join()
        return found


def count(params):
    with (paths.local() / "computed").open("a") as file:
        file.write("x")
    time.sleep(params["seconds"])
    return {"n": float(params["n"])}, {"curve": np.arange(3)}


EXPERIMENT = Experiment("shared", dict, count)


def run(n, seconds=0.0):
    return lambda: EXPERIMENT.run({"n": n, "seconds": seconds}).metrics["n"]


def images():
    return datasets.load("folder", source=paths.local().parent / "pictures", size=4).sha256


def times_computed():
    return len((paths.local() / "computed").read_text())


def test_what_one_has_computed_the_other_reads_and_the_other_way_round(shared):
    assert User(ALICE, run(1)).answer() == 1.0
    assert User(BOB, run(1)).answer() == 1.0
    assert User(BOB, run(2)).answer() == 2.0
    assert User(ALICE, run(2)).answer() == 2.0
    assert times_computed() == 2


def test_who_asks_at_once_computes_once_and_other_runs_wait_for_nothing(shared):
    began = time.monotonic()
    same = [User(uid, run(3, 1.0)) for uid in (ALICE, BOB)]
    other = User(BOB, run(4))
    assert other.answer() == 4.0
    assert [user.answer() for user in same] == [3.0, 3.0]
    assert times_computed() == 2
    assert time.monotonic() - began < 60


def test_a_run_that_one_left_unfinished_the_other_finishes(shared):
    stopped = User(ALICE, run(5, 60.0))
    while not (paths.local() / "computed").exists():
        assert stopped.process.is_alive()
        time.sleep(0.05)
    stopped.process.kill()
    stopped.process.join()
    quick = {"n": 5, "seconds": 60.0}
    assert User(BOB, lambda: made_up.run(EXPERIMENT, quick, lambda p: ({"n": 5.0}, {})).metrics["n"]).answer() == 5.0


def test_images_that_one_decoded_the_other_opens_and_one_may_replace_what_is_damaged(shared):
    first = User(ALICE, images).answer()
    assert len(first) == 64
    assert User(BOB, images).answer() == first
    (array,) = (shared / "cache" / "datasets").glob("*/images.npy")
    array.write_bytes(array.read_bytes()[:-5])
    assert User(BOB, images).answer() == first


def test_who_may_only_read_reads_and_is_told_what_cannot_be_written(shared):
    User(ALICE, run(6)).answer()
    (paths.local() / "runs").chmod(0o2750)
    assert User(BOB, run(6)).answer() == 6.0
    assert "PermissionError" in str(User(BOB, run(7)).answer())
