"""A fingerprint of code: which source a computation can reach, and whether it changed since.

A number that was computed earlier may be used again only if the code that would compute it now is the same. What
"the code" is, is found by reading imports: starting from a module, every module of the same project that its source
imports, at its top or inside a function, and so on. Each is hashed as a syntax tree without its docstrings, so that
comments, docstrings and layout do not count.

    before = reachable("sibcore.train")
    ...
    changed(before, reachable("sibcore.train"))      # ["sibcore.xi"]

Importing `sibcore.xi` runs `sibcore/__init__.py` first, but a package's own file counts only where a name is taken
from it (`from sibcore import SIB`): what else stands there cannot reach the computation. A module whose name is made
while the program runs (`import_module(f"...")`) is not seen.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import inspect
import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sibcore.files import key_of

Hashes = dict[str, str]  # of the source of each module, by its name
KEEP = "SIB_KEEP"  # names of runs, experiments or checkpoint folders whose older code is accepted


@functools.cache
def reachable(*modules: str) -> Hashes:
    """Return the hash of every module that `modules` can reach by imports, themselves among them, by name.

    The answer is remembered for the life of the process, as the code is that the process has loaded: a file that is
    edited during a long run does not change what the run was computed with.
    """
    return _reach(modules, {_top(name) for name in modules} | {"sibcore"})


def reachable_from_source(source: str, projects: Iterable[str]) -> Hashes:
    """Return the hash of every module that a piece of code can reach, such as the cells of a notebook.

    Args:
        source: the code.
        projects: names of top-level packages whose modules count.
    """
    projects = set(projects)
    return _reach(_imported(ast.parse(source), "", projects), projects)


def code_of(*things: Any) -> Hashes:
    """Return the hash of every module that the modules of these classes or functions can reach.

    A class or function that was typed into a notebook has no module with a file. Its own source counts instead.
    """
    found: Hashes = {}
    for thing in things:
        if _file(thing.__module__):
            found |= reachable(thing.__module__)
        else:
            found[f"{thing.__module__}.{thing.__qualname__}"] = _hash(_own_source(thing))
    return found


def digest(hashes: Mapping[str, str]) -> str:
    """Return twelve hex digits that stand for all these modules: the fingerprint that people see."""
    return key_of(dict(hashes))


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the names of the modules that differ, are new or are gone."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def listed(modules: Sequence[str]) -> str:
    """Return the first three names in one line, and the number of the others."""
    more = f" and {len(modules) - 3} more" if len(modules) > 3 else ""
    return ", ".join(modules[:3]) + more


def is_kept(name: str) -> bool:
    """Tell whether somebody asked, by name, to go on using this run although the code behind it changed.

    `SIB_KEEP` holds names of runs, or of experiments (the part before the last dash), with commas between them.
    """
    kept = [part.strip() for part in os.environ.get(KEEP, "").split(",")]
    return bool({name, name.rpartition("-")[0]} & {part for part in kept if part})


def check_code(folder: Path, before: Any, now: Hashes) -> None:
    """Raise a ValueError if a checkpoint in `folder` was made by other code, unless it is kept by name."""
    if before == now or is_kept(folder.name):
        return
    known = before if isinstance(before, dict) else {}
    which = f"{listed(changed(known, now))} changed" if known else "its checkpoint does not say which code made it"
    raise ValueError(
        f"{folder} holds a training that was begun by other code ({which}): delete the folder to start again, "
        f"or set {KEEP}={folder.name} to go on all the same"
    )


def _reach(modules: Iterable[str], projects: set[str]) -> Hashes:
    """Return the hash of every module of `projects` that can be reached from `modules`, by name."""
    found: Hashes = {}
    todo = list(modules)
    while todo:
        name = todo.pop()
        file = _file(name)
        if name in found or file is None:
            continue
        found[name], imports = _read(file, name, frozenset(projects), file.stat().st_mtime_ns)
        todo += imports
    return dict(sorted(found.items()))


@functools.lru_cache(maxsize=1024)
def _read(file: Path, name: str, projects: frozenset[str], _: int) -> tuple[str, list[str]]:
    """Return the hash of a module's source and the modules it imports."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    return _hash(ast.dump(_bare(tree))), list(_imported(tree, package, projects))


def _imported(tree: ast.Module, package: str, projects: Iterable[str]) -> Iterator[str]:
    """Yield the modules of `projects` that a module of `package` imports."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            inside = [f"{source}.{alias.name}" for alias in node.names]
            names = [module if _top(module) in projects and _file(module) else source for module in inside]
        yield from (name for name in names if _top(name) in projects)


@functools.cache
def _file(module: str) -> Path | None:
    """Return the source file of a module, without importing it."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top) if top != "__main__" else None
    for place in (spec.submodule_search_locations or []) if spec else []:
        path = Path(place, *rest)
        for file in (path / "__init__.py", path.with_name(f"{path.name}.py")):
            if file.is_file():
                return file
    alone = spec is not None and not rest and spec.origin is not None and spec.origin.endswith(".py")
    return Path(spec.origin) if alone else None


def _own_source(thing: Any) -> str:
    """Return the source of a class or function, as a syntax tree without docstrings where it can be parsed."""
    text = textwrap.dedent(inspect.getsource(thing))
    try:
        return ast.dump(_bare(ast.parse(text)))
    except SyntaxError:  # a lambda in the middle of a statement
        return text


def _bare(tree: ast.Module) -> ast.Module:
    """Take docstrings, and other statements that are a text alone, out of a tree."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [statement for statement in body if not _is_text(statement)]
    return tree


def _is_text(statement: ast.stmt) -> bool:
    """Tell whether a statement is a text alone, as a docstring is."""
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant and isinstance(statement.value.value, str)


def _top(module: str) -> str:
    """Return the first part of a module's name."""
    return module.partition(".")[0]


def _hash(text: str) -> str:
    """Return the first 16 hex digits of a text's sha256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
