"""Work that is killed: in a process of its own, by a signal that no program can catch."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable

from tqdm import tqdm

FORK = multiprocessing.get_context("fork")
KILLED = -signal.SIGKILL


def killed_at_write(number: int, work: Callable[[], object]) -> bool:
    """Do `work` in a process that dies in the middle of its atomic write `number` (from 1); whether it came so far."""

    def until_the_write() -> None:
        written = 0

        def fsync(handle: int) -> None:
            nonlocal written
            written += 1
            if written == number:
                os.kill(os.getpid(), signal.SIGKILL)

        os.fsync = fsync
        work()

    return _in_a_process(until_the_write) == KILLED


def killed_after(seconds: float, work: Callable[[], object]) -> bool:
    """Do `work` in a process that is killed after so many seconds, wherever it is then; whether it was still at it."""
    return _in_a_process(work, seconds) == KILLED


def _in_a_process(work: Callable[[], object], seconds: float | None = None) -> int:
    process = FORK.Process(target=_quietly, args=(work,))
    process.start()
    process.join(seconds)
    process.kill()
    process.join()
    if process.exitcode > 0:
        raise AssertionError("the work failed before it was killed")
    return process.exitcode


def _quietly(work: Callable[[], object]) -> None:
    sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115, for the rest of the process
    tqdm.set_lock(threading.RLock())  # its own would be shared with who waits, and nobody frees it after a kill
    work()
