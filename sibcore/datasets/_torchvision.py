"""Import torchvision even if its compiled operators do not match the installed torch.

`pip` can leave a CPU build of torch beside a CUDA build of torchvision, or the other way round. torchvision's extension
then fails to load, and `import torchvision` stops at the first operator that it wants to describe: "operator
torchvision::nms does not exist". This project uses only its data sets, transforms and models, which are pure Python and
need none of those operators, so it is enough to declare the missing schemas. A call of a declared operator still fails,
as it should, because it has no kernel.

Use `from sibcore.datasets._torchvision import torchvision` instead of `import torchvision`.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import torch

# The operators that torchvision describes at import time (torchvision/_meta_registrations.py).
SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def import_torchvision() -> ModuleType:
    """Return the module torchvision. If the import fails for an operator of `SCHEMAS`, declare them and try again."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if not any(f"torchvision::{name} does not exist" in str(error) for name in SCHEMAS):
            raise
    for name, schema in SCHEMAS.items():
        torch.library.define(f"torchvision::{name}", schema)
    for module in [m for m in sys.modules if m == "torchvision" or m.startswith("torchvision.")]:
        del sys.modules[module]  # a failed import leaves half-made modules behind
    return importlib.import_module("torchvision")


torchvision = import_torchvision()
