"""Where a number comes from: commit, code, versions, machine."""

from __future__ import annotations

import ast
import datetime
import hashlib
import importlib.metadata
import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from sibcore.device import pick_device
from sibrepro import paths

PACKAGES = ("torch", "torchvision", "numpy", "matplotlib", "seaborn", "papermill")


def collect(params: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Everything a record says of its making, apart from its code and data hashes."""
    device = pick_device()
    return {
        "commit": _git("rev-parse", "HEAD"),
        # results, figures and notebooks' outputs change with every run; only changed code makes the commit untrue
        "dirty": bool(_git("status", "--porcelain", "--", "sibcore")),
        "seed": params.get("seed"),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "device": str(device),
        "processor": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name(),
        "threads": torch.get_num_threads(),
        "platform": f"{platform.system()} {platform.machine()}",
        "finished": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "wall_seconds": round(seconds, 3),
    }


# Modules that carry results about rather than compute them: a change there does not make a run's numbers stale.
CARRIERS = frozenset(f"sibcore.{name}" for name in ("manifest", "params", "paths", "plots", "provenance", "runs"))


def code_fingerprint(modules: Iterable[str], skip: frozenset[str] = CARRIERS) -> str:
    """Hash of these sibcore modules and of all that they import inside sibcore, apart from `skip`.

    It hashes syntax trees without docstrings, so that comments and formatting do not count as a change.
    """
    trees: dict[str, str] = {}
    todo = sorted(set(modules))
    while todo:
        module = todo.pop()
        if module not in trees:
            tree = ast.parse(_source(module))
            todo += sorted(imports(tree) - skip)
            trees[module] = ast.dump(_without_docstrings(tree))
    return hashlib.sha256("\n".join(f"{name} {trees[name]}" for name in sorted(trees)).encode()).hexdigest()[:16]


def imports(tree: ast.AST) -> set[str]:
    """The sibcore modules that a syntax tree imports, in either form of the statement."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.startswith("sibcore.") and _file(name)}


def _file(module: str) -> Path | None:
    """The source file of a sibcore module, without importing it."""
    path = paths.PACKAGE.parent.joinpath(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def _source(module: str) -> str:
    file = _file(module)
    if file is None:
        raise ValueError(
            f"{module} is not a module of sibcore; a run is computed by a function of the package, so that its code "
            "can be traced: move the function there"
        )
    return file.read_text(encoding="utf-8")


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False):
            node.body = node.body[1:]
    return tree


@cache
def _git(*arguments: str) -> str | None:
    try:
        answer = subprocess.run(["git", "-C", paths.root(), *arguments], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


@cache
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
