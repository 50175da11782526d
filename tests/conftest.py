from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """No test writes into the checkout, and none depends on the caller's settings."""
    monkeypatch.setenv("SIB_OUTPUT", str(tmp_path / "output"))
    for name in ("SIB_HOME", "SIB_FORCE", "SIB_MANIFEST", "SIB_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path
