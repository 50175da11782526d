from __future__ import annotations

import io

import pytest

from sibrepro.run.sweep import progress
from sibrepro.run.sweep.point import Result


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until a test moves it."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def result(point: str, seconds: float, error: str | None = None) -> Result:
    return Result(point, "tiny", {}, error, seconds, seconds)


def test_a_log_gets_one_line_for_each_event(clock):
    log = io.StringIO()
    shown = progress.Progress("tiny", total=5, slots=2, done=1, stream=log)
    shown.start("a")
    shown.start("b")
    clock[0] += 60
    shown.finish(result("a", 60))
    shown.show(least=0)
    shown.finish(result("b", 60, "in cell 3: KeyError\nmore"))
    shown.close()
    lines = log.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[0] == "running  a  (done 1/5, running 1, failed 0, waiting 3, after 0:00)"
    # a done, b has had its minute, two points of a minute for two processes
    assert lines[2] == "done     a  60.0 s  (done 2/5, running 1, failed 0, waiting 2, after 1:00, about 1:00 left)"
    assert "failed   b  60.0 s: in cell 3: KeyError  (done 2/5, running 0, failed 1, waiting 2" in lines[3]


def test_a_terminal_gets_a_table_that_is_drawn_over_itself(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    screen = Terminal()
    shown = progress.Progress("tiny", total=3, slots=2, stream=screen)
    shown.start("a" * 70)
    shown.start("b")
    assert screen.getvalue() == ""
    clock[0] += 1
    shown.show()
    shown.show()  # too early
    first = screen.getvalue()
    assert len(first.splitlines()) == 3
    assert all(len(line) < 60 for line in first.splitlines())
    clock[0] += 1
    shown.show()
    assert screen.getvalue()[len(first) :].startswith("\x1b[3F\x1b[J")
    shown.finish(result("b", 2, "timeout"))
    assert "failed   b  2.0 s: timeout\n" in screen.getvalue()


def test_long_times_are_readable():
    assert [progress.clock(s) for s in (0, 59.6, 3599, 7322)] == ["0:00", "1:00", "59:59", "2:02:02"]
