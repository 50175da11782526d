"""Tables and claims are made once in a process; a test with other facts has to forget those of the one before."""

from __future__ import annotations

import sys
from typing import Any


def forget() -> None:
    for name, module in list(sys.modules.items()):
        if name in ("sibrepro.claims", "sibrepro.run.pipeline") or name.startswith("sibrepro.studies."):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def declared() -> dict[str, Any]:
    """Return the experiments that are declared by now, by name; none if nothing has imported them."""
    module = sys.modules.get("sibrepro.facts.experiment")
    return module.EXPERIMENTS if module else {}
