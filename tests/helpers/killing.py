"""Kill work at a chosen moment: it runs in a process of its own, which gets a signal that no program can catch."""

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
    """Do `work` in a process that dies in the middle of one of its atomic writes.

    Args:
        number: the write to die in, counted from 1.
        work: the function to call.

    Returns:
        Whether the process was killed, or did its work with fewer writes than that.
    """

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
    """Do `work` in a process that is killed after some time, wherever it is then.

    Args:
        seconds: the time until the kill.
        work: the function to call.

    Returns:
        Whether the process was still at work, and so was killed.
    """
    return _in_a_process(work, seconds) == KILLED


def _in_a_process(work: Callable[[], object], seconds: float | None = None) -> int:
    """Do `work` in a forked process, for some seconds at most, and return its exit code."""
    process = FORK.Process(target=_quietly, args=(work,))
    process.start()
    process.join(seconds)
    process.kill()
    process.join()
    if process.exitcode > 0:
        raise AssertionError(f"the work failed before it was killed, with exit code {process.exitcode}")
    return process.exitcode


def _quietly(work: Callable[[], object]) -> None:
    """Do `work` without any output, in a process that may be killed."""
    sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115, for the rest of the process
    # tqdm's own lock is shared with the parent process, where nobody would free it after a kill.
    tqdm.set_lock(threading.RLock())
    work()
