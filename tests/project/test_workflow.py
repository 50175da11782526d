"""One list of Python versions: the classifiers of pyproject.toml. CI, the README's badge and the scripts follow it."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from sibrepro import paths

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib; newer versions check the same files")

ROOT = paths.PACKAGE.parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CLASSIFIERS = [text.removeprefix("Programming Language :: Python :: ") for text in PROJECT["classifiers"]]
PYTHONS = [text for text in CLASSIFIERS if re.fullmatch(r"3\.\d+", text)]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
JOBS = WORKFLOW["jobs"]


def versions(text: str) -> list[str]:
    return re.findall(r"(?<![\d.])3\.\d+", text)


def test_the_classifiers_name_every_version_from_the_oldest_that_is_allowed():
    minors = [int(python.split(".")[1]) for python in PYTHONS]
    assert minors == list(range(minors[0], minors[-1] + 1))
    allowed = SpecifierSet(PROJECT["requires-python"])
    assert all(allowed.contains(f"{python}.0") for python in PYTHONS)
    assert not allowed.contains(f"3.{minors[0] - 1}.99")


def test_continuous_integration_runs_each_of_them():
    assert JOBS["test"]["strategy"]["matrix"]["python"] == PYTHONS
    setup = next(step for step in JOBS["test"]["steps"] if "setup-python" in step.get("uses", ""))
    assert setup["with"]["python-version"] == "${{ matrix.python }}"


def test_the_badge_of_the_readme_names_them():
    alternative, address = re.search(r"!\[(Python[^\]]*)\]\(([^)]*)\)", (ROOT / "README.md").read_text()).groups()
    assert versions(alternative) == [PYTHONS[0], PYTHONS[-1]]
    assert versions(unquote(address)) == PYTHONS


def test_run_all_looks_for_them_and_refuses_older_ones():
    script = (ROOT / "run_all.sh").read_text()
    candidates = re.search(r"for candidate in (.*); do", script).group(1)
    assert sorted(versions(candidates), key=PYTHONS.index) == PYTHONS
    oldest = PYTHONS[0].replace("3.", "(3, ") + ")"
    assert f"sys.version_info < {oldest}" in script
    assert f"Python {PYTHONS[0]} or newer" in script


def test_the_workflow_runs_scripts_of_the_checkout_alone():
    """What CI does can then be done by hand, too."""
    commands = [step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step]
    assert commands == [".ci/wheel", ".ci/run"]
    assert all(os.access(ROOT / command, os.X_OK) for command in commands)


def test_the_workflow_keeps_the_site_where_run_all_builds_it():
    uploads = [step for step in JOBS["test"]["steps"] if "upload-pages-artifact" in step.get("uses", "")]
    assert [step["with"]["path"] for step in uploads] == ["results/local/report"]
    assert uploads[0]["if"] in [f"matrix.python == '{python}'" for python in PYTHONS]  # once, in one job
    assert "results/local/report/index.html" in (ROOT / "run_all.sh").read_text()


def test_only_the_main_branch_is_published_and_only_that_job_may_write():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert [name for name, job in JOBS.items() if "permissions" in job] == ["publish"]
    assert JOBS["publish"]["needs"] == "test"
    assert "github.ref == 'refs/heads/main' && github.event_name != 'pull_request'" in JOBS["publish"]["if"]
