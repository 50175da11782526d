from __future__ import annotations

import os

import pytest
from forgetting import declared, forget
from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:  # a process for each core, so one thread in each; before torch is imported
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# No deadline: the first call into torch is slow. In CI the same examples each time: new ones are for those who look on.
settings.register_profile("sibcore", deadline=None, max_examples=30, derandomize=bool(os.environ.get("CI")))
settings.load_profile("sibcore")


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """No test writes into the checkout, and none depends on the caller's settings."""
    monkeypatch.setenv("SIB_OUTPUT", str(tmp_path / "output"))
    for name in (
        "SIB_HOME",
        "SIB_FORCE",
        "SIB_KEEP",
        "SIB_RECOMPUTE",
        "SIB_MANIFEST",
        "SIB_FIGURES",
        "SIB_TABLES",
        "SIB_DEVICE",
    ):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture(autouse=True)
def nothing_remembered():
    """Forget tables and claims that were made from facts, and what a test declared in place of an experiment."""
    before = dict(declared())
    yield
    forget()
    declared().update(before)


@pytest.fixture(scope="session")
def real_report(tmp_path_factory):
    """The report on the published notebooks, tables, figures and runs, built once."""
    from sibrepro import site as report

    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("SIB_HOME", raising=False)
        environment.setenv("SIB_OUTPUT", str(folder / "nothing here"))
        return report.build(folder / "report").parent
