"""What a notebook used and made, told to whoever runs it.

`./run_all.sh` sets `SIB_MANIFEST` to a file; every run loaded or computed and every figure or table written adds one
JSON line to it. Without that variable nothing is written.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from sibcore.files import parse_json


def note(kind: str, what: str, **details: object) -> None:
    """Add one line: `kind` is "run" (`what` is its id), "figure", "table" or "data" (`what` is a path)."""
    manifest = os.environ.get("SIB_MANIFEST")
    if manifest:
        with Path(manifest).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "what": what, **details}) + "\n")


def read(path: Path) -> list[dict]:
    return [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
