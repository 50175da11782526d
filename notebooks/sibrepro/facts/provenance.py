"""Provenance: the commit, the package versions and the machine that a run was computed with."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import torch

from sibcore.device import pick_device
from sibrepro import paths

PACKAGES = ("torch", "torchvision", "numpy", "matplotlib", "seaborn", "papermill")


def collect(params: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return the provenance of a run that ends now, apart from its version, code fingerprint and data hashes.

    Args:
        params: the run's parameters.
        seconds: how long the run took.
    """
    device = pick_device()
    return {
        "commit": git("rev-parse", "HEAD"),
        # Only changed code counts: results, figures and the outputs of notebooks change with every run.
        "dirty": bool(git("status", "--porcelain", "--", "sibcore", "notebooks/sibrepro")),
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


def git(*arguments: str) -> str | None:
    """Return what git answers in the project's folder, or None if there is no git or no repository."""
    return _git_in(paths.root(), *arguments)


@cache
def _git_in(folder: Path, *arguments: str) -> str | None:
    """Ask git in a folder. The answer is cached, because every run of a process asks the same questions."""
    try:
        answer = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


@cache
def _cpu_name() -> str:
    """Return the model of the processor, which Linux has in /proc/cpuinfo."""
    cpuinfo = Path("/proc/cpuinfo")
    model = cpuinfo.is_file() and re.search(r"^model name.*?:(.*)$", cpuinfo.read_text(), re.MULTILINE)
    return model[1].strip() if model else platform.processor() or platform.machine()
