"""Tables and claims are made once in a process; a test with other facts has to forget those of the one before."""

from __future__ import annotations

import sys


def forget() -> None:
    for name, module in list(sys.modules.items()):
        if name == "sibrepro.claims" or name.startswith("sibrepro.studies."):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
