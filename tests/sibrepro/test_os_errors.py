"""What the operating system refuses reaches users of `sib` as one line that says what to do."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys

import pytest
from killing import FORK

from sibcore.apply import cli
from sibrepro import __main__ as sib
from sibrepro import paths

# trains for a moment, on features that come with the project, and writes a run
FEW_SHOT = ["few-shot", "--features", "shipped", "--shots", "1", "--K", "0", "--steps", "1"]


def run(prepare) -> int:
    """The exit code of `sib` in a process that has been prepared for the worst."""

    def work():
        prepare()
        sys.exit(sib.main(FEW_SHOT))

    process = FORK.Process(target=work)
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.ENOSPC, "make room"), (errno.EACCES, "SIB_OUTPUT"), (errno.EROFS, "SIB_OUTPUT")]
)
def test_an_error_of_the_system_is_one_line_with_advice(monkeypatch, capsys, number, advice):
    def fail(options):
        raise OSError(number, os.strerror(number), "/some/where")

    monkeypatch.setattr(cli, "_data_list", fail)
    assert sib.main(["data", "list"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: /some/where: {os.strerror(number)}; ")
    assert advice in said
    assert said.count("\n") == 1


@pytest.mark.thorough
def test_a_disk_that_is_full_when_a_run_is_written_is_one_line_that_names_the_file(capfd):
    def little_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails then, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

    assert run(little_room) == 2
    said = capfd.readouterr().err
    assert "Traceback" not in said
    assert "best.safetensors: File too large; make room" in said.splitlines()[-1]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_results_that_belong_to_somebody_else_are_one_line(capfd):
    paths.local().mkdir(mode=0o755)

    assert run(lambda: os.setuid(65534)) == 2
    said = capfd.readouterr().err
    assert "Traceback" not in said
    assert "Permission denied; set SIB_OUTPUT" in said.splitlines()[-1]
