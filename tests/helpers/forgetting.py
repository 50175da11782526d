"""Forget what this process remembers of published facts.

Tables and claims are made once in a process. A test with other facts must not see those of the test before.
"""

from __future__ import annotations

import sys
from typing import Any


def forget() -> None:
    """Clear the caches of claims, of the pipeline and of all studies that are imported."""
    for name, module in list(sys.modules.items()):
        if name in ("sibrepro.claims", "sibrepro.run.pipeline") or name.startswith("sibrepro.studies."):
            cached = [value for value in vars(module).values() if hasattr(value, "cache_clear")]
            for function in cached:
                function.cache_clear()


def declared() -> dict[str, Any]:
    """Return the experiments that are declared by now, by name, or an empty dict if nothing has imported them."""
    module = sys.modules.get("sibrepro.facts.experiment")
    return module.EXPERIMENTS if module else {}
