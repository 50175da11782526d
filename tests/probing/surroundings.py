"""Run stages of the project in bad surroundings: a full disk, somebody else's folders, stray files.

A stage has to work all the same, or to raise an error that says what is wrong, and must not damage anything.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
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

# The stages of `kills.works` that are tried here: all but the sweep.
STAGES = ("decoding", "pretraining", "extraction", "meta-training", "stacked training", "PACS", "publish")
NOBODY = 65534  # the number of the user without rights
# Errors by which the operating system refuses to write.
REFUSED = (errno.ENOSPC, errno.EFBIG, errno.EACCES, errno.EROFS, errno.EPERM)
# Bytes of disk space: enough for nothing, for a lock, for some files, for nearly all.
ROOM = (0, 8 << 10, 64 << 10, 600 << 10)
# Things that may lie about in a folder, and how to make them.
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
    """Try a full disk, another user and strays with one stage after another, for ever.

    Args:
        world: the scratch folder.
        table: where the results go.
        seed: chooses how small the disk is and which strays lie about.
    """
    stages = {name: work for name, work in works(world).items() if name in STAGES}
    expected: dict[str, str] = {}
    for number, (name, work) in enumerate(itertools.cycle(stages.items()), seed + 1):
        if name not in expected:
            with world.scratch():
                expected[name] = digest(work())
        _full_disk(world, table, name, work, expected[name], ROOM[number % len(ROOM)])
        _not_ours(world, table, name, work, expected[name])
        _strays(world, table, number)
        yield


def _full_disk(world: World, table: Table, name: str, work: Callable[[], object], expected: str, room: int) -> None:
    """Work on a disk with too little room, where it may fail, and then with enough, where it may not."""
    with table.attempt("full disk", name, f"{room} bytes"), _disk(world) as shrink:
        _said_or_done(work, shrink(room))
        shrink(64 << 20)
        _same(work, expected)


@contextlib.contextmanager
def _disk(world: World) -> Iterator[Callable[[int], Callable[[], None]]]:
    """Let everything inside the block be computed on a small disk.

    It is a file system in memory where one can be mounted. Where not, the size of files is limited instead.

    Yields:
        A function that makes the disk this many bytes large. It returns another function, which a child process has to
        call for the limit on files to hold there.
    """
    folder = Path(tempfile.mkdtemp(dir=world.folder))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "probe", folder], capture_output=True)

    def remount(room: int) -> Callable[[], None]:
        size = max(room, 4096)  # 0 would mean no limit
        subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True, capture_output=True)
        return lambda: None

    def limit(room: int) -> Callable[[], None]:
        def lower() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))

        return lower

    try:
        with world.place(folder):
            yield limit if mounted.returncode else remount
    finally:
        if not mounted.returncode:
            subprocess.run(["umount", "-l", folder], check=True, capture_output=True)


def _not_ours(world: World, table: Table, name: str, work: Callable[[], object], expected: str) -> None:
    """Let another user run a stage in our folder, which needs root to try.

    The other user cannot write there and has to be told so. If the stage is finished, they have to get its numbers.
    """
    if os.getuid() != 0:
        return

    def become_nobody() -> None:
        """Give up the rights of root, in a child process."""
        os.setuid(NOBODY)

    with table.attempt("permissions", name, "nothing there"), world.scratch() as folder:
        if _said_or_done(work, become_nobody) == "done":
            raise AssertionError("another user could write")
        if _tree(folder):  # it was empty
            raise AssertionError("something was written all the same")
    if name == "publish":
        return  # a maintainer's command always writes
    with table.attempt("permissions", name, "finished there"), world.scratch() as folder:
        work()
        before = _tree(folder)
        if _said_or_done(lambda: _same(work, expected), become_nobody) == "said":
            raise AssertionError("another user could not read what is finished")
        if _tree(folder) != before:
            raise AssertionError("something was changed")


def _strays(world: World, table: Table, seed: int) -> None:
    """Leave an odd thing in every folder that the project writes to.

    Afterwards everything that is finished has to be found as before, and what is not has to be computed.
    """
    chance, stages = random.Random(seed), works(world)
    kind = [*STRAYS][seed % len(STRAYS)]
    with table.attempt("strays", kind, f"seed {seed}"), world.scratch() as folder:
        names = ("meta-training", "publish", "decoding")
        expected = {name: digest(stages[name]()) for name in names}
        first = run(world.experiment, Settings(9), lambda p: ({"answer": 9.0}, {}))
        # A folder of trainings that were stopped, which only `together` looks into.
        (cache_folder() / "stacks" / "stray").mkdir(parents=True)
        places = [path for path in sorted(folder.rglob("*")) if path.is_dir()]
        for place in [folder, *places]:
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
    """Raise AssertionError if `work` does not give the numbers with this digest."""
    if digest(work()) != expected:
        raise AssertionError("the work ended with other numbers than before")


def _said_or_done(work: Callable[[], object], prepare: Callable[[], None]) -> str:
    """Do `work` in a process of its own, after `prepare`.

    Returns:
        "done" if it succeeded, "said" if it raised a ValueError or an error of the operating system that tells of the
        bad surroundings. Anything else raises AssertionError.
    """
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

    # A process of its own can lose its rights and get limits without changing this one.
    process = FORK.Process(target=child)
    process.start()
    theirs.close()
    try:
        answer = ours.recv()
    except EOFError:
        answer = ""
    process.join()
    if answer not in ("done", "said"):
        raise AssertionError(answer or f"the process ended without a word, with exit code {process.exitcode}")
    return answer


def _tree(folder: Path) -> dict[Path, bytes | None]:
    """Return everything in a folder, with the contents of files."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
