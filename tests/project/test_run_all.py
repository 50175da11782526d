from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from sibrepro import paths

SCRIPT = paths.PACKAGE.parents[1] / "run_all.sh"


def run(*arguments, **environment):
    full = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **environment}
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, env=full, timeout=300)


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help_needs_no_environment_and_names_every_command_and_option(word):
    result = run(word, PATH="/usr/bin:/bin")
    assert result.returncode == 0
    for name in (
        "test",
        "--all",
        "exhaustive",
        "lab",
        "verify",
        "publish",
        "--profile",
        "--only",
        "--list",
        "--force",
        "quick|cpu|paper",
        "SIB_DATA",
        "SIB_DEVICE",
        "SIB_OUTPUT",
    ):
        assert name in result.stdout


def test_an_unknown_command_is_refused_before_anything_is_set_up():
    result = run("tset")
    assert result.returncode == 2
    assert "there is no command 'tset'" in result.stderr


def test_without_a_python_the_error_says_what_is_needed(tmp_path):
    for tool in ("bash", "dirname", "env", "cat"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    copy = tmp_path / "checkout" / "run_all.sh"
    copy.parent.mkdir()
    copy.write_bytes(SCRIPT.read_bytes())
    copy.chmod(0o755)
    result = subprocess.run([copy], capture_output=True, text=True, env={"PATH": str(tmp_path)}, timeout=60)
    assert result.returncode != 0
    assert "no Python 3.10 or newer" in result.stderr
    assert sorted(p.name for p in copy.parent.iterdir()) == ["run_all.sh"]
