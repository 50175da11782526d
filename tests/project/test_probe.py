"""The standing probe, for some seconds: kills, damaged files, a full disk, another user, strays (tests/probe.py)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sibrepro import paths

pytestmark = pytest.mark.exhaustive

TESTS = paths.PACKAGE.parents[1] / "tests"


@pytest.mark.parametrize("kind", ["surroundings", "fuzz", "kill"])
def test_nothing_breaks(kind):
    command = [sys.executable, TESTS / "probe.py", "--only", kind, "--minutes", "0.1"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr[-2000:]
    totals = [line.split() for line in result.stdout.splitlines() if " all " in line]
    assert totals, "it says what it tried"
    assert all(int(tried) > 0 and tried == held for *_, tried, held, _ in totals)
