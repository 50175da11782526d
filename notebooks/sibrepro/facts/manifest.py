"""The manifest: what a notebook used and wrote, reported to the command that executes it.

`./run_all.sh` sets `SIB_MANIFEST` to the path of a file. Every run that a notebook loads or computes, and every figure
or table that it writes, adds a JSON line to that file. If the variable is not set, nothing is written.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from sibcore.files import parse_json


def note(kind: str, what: str, **details: object) -> None:
    """Add a line to the manifest.

    Args:
        kind: "run", "figure", "table" or "data".
        what: the id of the run, or the path of the file.
        details: what else to report of it, such as how a run was obtained.
    """
    manifest = os.environ.get("SIB_MANIFEST")
    if manifest:
        with Path(manifest).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "what": what, **details}) + "\n")


def read(path: Path) -> list[dict]:
    """Return the lines of a manifest, none if the file does not exist."""
    if not path.is_file():
        return []
    return [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
