"""Import torchvision also where its compiled operators do not match the installed torch.

`pip` can leave a CPU build of torch beside a CUDA build of torchvision (or the other way round). torchvision's
extension then fails to load, and `import torchvision` stops at the first operator it wants to describe:
"operator torchvision::nms does not exist". This project uses only its data sets, transforms and models, which are
pure Python and need none of those operators, so declaring the missing schemas is enough. Calling a declared
operator still fails, as it should: it has no kernel.

Use `from sibcore.datasets._torchvision import torchvision` instead of `import torchvision`.
"""

from __future__ import annotations

import importlib
import sys

import torch

# The operators torchvision describes at import time (torchvision/_meta_registrations.py).
SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def import_torchvision():
    """torchvision as installed; where that fails for a missing operator of `SCHEMAS`, with these declared."""
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
