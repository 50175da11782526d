"""A full disk, folders of somebody else, and strays: an error that says so or nothing at all, and no harm done."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import random
import resource
import signal
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from killing import FORK
from made_up import run
from probing.kills import SMALL, digest, works
from probing.table import Table
from probing.world import Settings, World

from sibcore.datasets.base import cache_folder
from sibrepro.meta_training.training import together

STAGES = ("decoding", "pretraining", "extraction", "meta-training", "stacked training", "PACS", "publish")
NOBODY = 65534
REFUSED = (errno.ENOSPC, errno.EFBIG, errno.EACCES, errno.EROFS, errno.EPERM)
# enough for nothing, for a lock, for some files, for nearly all
ROOM = (0, 8 << 10, 64 << 10, 600 << 10)
STRAYS: dict[str, Callable[[Path], object]] = {
    "a folder": lambda path: path.mkdir(),
    "an empty file": lambda path: path.touch(),
    "noise": lambda path: path.write_bytes(random.Random(0).randbytes(300)),
    "half a json": lambda path: path.write_text('{"a": ['),
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a pipe": lambda path: os.mkfifo(path),
}
NAMES = ("stray", ".stray", "stray.json", "stray.ipynb", "stray.safetensors", "done", "made_up-000000000000", "x.tmp")


def rounds(world: World, table: Table, seed: int) -> Iterator[None]:
    """Strays, then a full disk and another user for one stage after another, for ever."""
    stages = {name: work for name, work in works(world).items() if name in STAGES}
    expected: dict[str, str] = {}
    while True:
        for name, work in stages.items():
            if name not in expected:
                with world.scratch() as folder, world.place(Path(folder)):
                    expected[name] = digest(work())
            seed += 1
            _full_disk(world, table, name, work, expected[name], ROOM[seed % len(ROOM)])
            _not_ours(world, table, name, work, expected[name])
            _strays(world, table, seed)
            yield


def _full_disk(world: World, table: Table, name: str, work: Callable[[], object], expected: str, room: int) -> None:
    """With too little room it says so, and with enough it goes on to the right numbers."""
    with table.attempt("full disk", name, f"{room} bytes"), _disk(world) as disk:
        _said_or_done(work, disk(room))
        disk(None)()
        _same(work, expected)


@contextlib.contextmanager
def _disk(world: World) -> Iterator[Callable[[int | None], Callable[[], None]]]:
    """Compute on a disk; gives `disk(bytes)`, which makes it so small for who calls what it returns; None: large again.

    A small file system in memory where it can be mounted, else a limit to the size of files.
    """
    folder = Path(tempfile.mkdtemp(dir=world.folder))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "probe", folder], capture_output=True)

    def remount(room: int | None) -> Callable[[], None]:
        size = 64 << 20 if room is None else max(room, 4096)
        subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True, capture_output=True)
        return lambda: None

    def limit(room: int | None) -> Callable[[], None]:
        def lower() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))

        return (lambda: None) if room is None else lower

    try:
        with world.place(folder):
            yield limit if mounted.returncode else remount
    finally:
        if not mounted.returncode:
            subprocess.run(["umount", "-l", folder], check=True, capture_output=True)


def _not_ours(world: World, table: Table, name: str, work: Callable[[], object], expected: str) -> None:
    """Somebody else cannot write here, and is told; what is finished they can read."""
    if os.getuid() != 0:
        return
    with table.attempt("permissions", name, "nothing there"), world.scratch() as folder:
        Path(folder).chmod(0o755)
        with world.place(Path(folder)):
            _said_or_done(work, lambda: os.setuid(NOBODY), must_fail=True)
            if list(Path(folder).rglob("*")):
                raise AssertionError("something was written all the same")
    if name == "publish":
        return  # a maintainer's command always writes
    with table.attempt("permissions", name, "finished there"), world.scratch() as folder:
        Path(folder).chmod(0o755)
        with world.place(Path(folder)):
            work()
            before = _tree(Path(folder))
            _said_or_done(lambda: _same(work, expected), lambda: os.setuid(NOBODY), must_work=True)
            if _tree(Path(folder)) != before:
                raise AssertionError("something was changed")


def _strays(world: World, table: Table, seed: int) -> None:
    """An odd thing in every folder that the project keeps: what is finished is found as before, what is not is made."""
    chance, stages = random.Random(seed), works(world)
    kind = [*STRAYS][seed % len(STRAYS)]
    with table.attempt("strays", kind, f"seed {seed}"), world.scratch() as folder, world.place(Path(folder)):
        names = ("meta-training", "publish", "decoding")
        expected = {name: digest(stages[name]()) for name in names}
        first = run(world.experiment, Settings(9), lambda p: ({"answer": 9.0}, {}))
        (cache_folder() / "stacks" / "stray").mkdir(parents=True)
        for place in [Path(folder), *(path for path in sorted(Path(folder).rglob("*")) if path.is_dir())]:
            path = place / chance.choice(NAMES)
            if not os.path.lexists(path):
                STRAYS[kind](path)
        for name in names:
            _same(stages[name], expected[name])
        if run(world.experiment, Settings(9), lambda p: ({"answer": 0.0}, {})).metrics != first.metrics:
            raise AssertionError("a run changed")
        if run(world.experiment, Settings(10), lambda p: ({"answer": 1.0}, {})).metrics != {"answer": 1.0}:
            raise AssertionError("a new run is not what was computed")
        together([dataclasses.replace(SMALL, K=K) for K in (2, 3)], world.few_shot, world.network)


def _same(work: Callable[[], object], expected: str) -> None:
    if digest(work()) != expected:
        raise AssertionError("other numbers")


def _said_or_done(
    work: Callable[[], object], prepare: Callable[[], None], must_fail: bool = False, must_work: bool = False
) -> None:
    """In a process that was prepared, `work` succeeds or raises what the operating system refused, or a ValueError."""
    ours, theirs = FORK.Pipe(duplex=False)

    def child() -> None:
        try:
            prepare()
            work()
            theirs.send("done")
        except ValueError:
            theirs.send("said")
        except OSError as error:
            theirs.send("said" if error.errno in REFUSED else traceback.format_exc())
        except BaseException:
            theirs.send(traceback.format_exc())

    process = FORK.Process(target=child)
    process.start()
    theirs.close()
    try:
        answer = ours.recv()
    except EOFError:
        answer = ""
    process.join()
    if not answer:
        raise AssertionError(f"it ended without a word, with {process.exitcode}")
    if answer not in ("done", "said") or (must_fail and answer == "done") or (must_work and answer == "said"):
        raise AssertionError(answer if answer not in ("done", "said") else f"it was {answer}")


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
