"""Where a number comes from: commit, versions, machine."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import torch

from sibcore.device import pick_device
from sibrepro import paths

PACKAGES = ("torch", "torchvision", "numpy", "matplotlib", "seaborn", "papermill")


def collect(params: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Everything a record says of its making, apart from its version and data hashes."""
    device = pick_device()
    return {
        "commit": _git("rev-parse", "HEAD"),
        # results, figures and notebooks' outputs change with every run; only changed code makes the commit untrue
        "dirty": bool(_git("status", "--porcelain", "--", "sibcore", "notebooks/sibrepro")),
        "seed": params.get("seed"),
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
        "device": str(device),
        "processor": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name(),
        "threads": torch.get_num_threads(),
        "platform": f"{platform.system()} {platform.machine()}",
        "finished": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "wall_seconds": round(seconds, 3),
    }


def _git(*arguments: str) -> str | None:
    return _answer(paths.root(), *arguments)


@cache
def _answer(folder: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


@cache
def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
