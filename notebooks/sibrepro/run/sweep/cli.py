"""`sib sweep`: run one, gather its table again, draw from it."""

from __future__ import annotations

import argparse
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path

from sibrepro import paths

ACTIONS = ("run", "table", "plot", "-h", "--help")
FACETS = ("hue", "style", "col", "row")
EXAMPLE = "example: sib sweep notebooks/02_spinning_lines.ipynb -g K=1,3,5 -g seed=0:4 -p epochs 50 -j 2"


def spelt_out(arguments: list[str]) -> list[str]:
    """`sweep notebook.ipynb` means `sweep run notebook.ipynb`."""
    plain = arguments[:1] == ["sweep"] and arguments[1:2] and arguments[1] not in ACTIONS
    return ["sweep", "run", *arguments[1:]] if plain else arguments


def add_parser(commands: argparse._SubParsersAction) -> None:
    sweep = commands.add_parser("sweep", help="run one notebook over a grid of parameters, here or on a Dask cluster")
    actions = sweep.add_subparsers(dest="action", required=True)
    run = actions.add_parser("run", help="run it; the word `run` may be left out", epilog=EXAMPLE)
    run.add_argument("notebook", type=Path)
    run.add_argument("-g", "--grid", action="append", default=[], metavar="K=0,1,3", help="values; or seed=0:5")
    run.add_argument("-f", "--file", action="append", default=[], type=Path, help="a grid as YAML, or points as CSV")
    run.add_argument("-p", "--parameter", action="append", default=[], nargs=2, metavar=("NAME", "VALUE"), help="fixed")
    run.add_argument("--zip", action="store_true", help="pair the lists instead of multiplying them")
    run.add_argument("--profile", choices=paths.PROFILES, help="take what is not given from notebooks/params/")
    run.add_argument("--name", help="of the folder in results/local/sweeps; default: the notebook's")
    run.add_argument("-j", "--processes", type=int, metavar="N", help="points at a time; default: one per core")
    run.add_argument("--threads", type=int, metavar="N", help="of each point; default: cores / points at a time")
    run.add_argument(
        "--timeout", type=seconds, metavar="TIME", help="of a point: 90, 30m, 2h; then it counts as failed"
    )
    run.add_argument("--retry-failed", action="store_true", help="run failed points again")
    run.add_argument("--redo", action="store_true", help="execute all points again; valid run records are still loaded")
    run.add_argument("--dry-run", action="store_true", help="list the points and what would be done; run nothing")
    run.add_argument("--dask", default="local", metavar="ADDRESS", help="tcp://host:8786; default: processes made here")
    run.set_defaults(call=_later("run:run"))
    table = actions.add_parser("table", help="write the table again, for instance after plain papermill calls")
    table.add_argument("folder", type=Path)
    table.set_defaults(call=_later("table:gather"))
    plot = actions.add_parser("plot", help="draw a metric against a parameter")
    plot.add_argument("folder", type=Path)
    plot.add_argument("--x", required=True, help="a parameter")
    plot.add_argument("--y", required=True, help="a metric; the end of its name will do if that is clear")
    for place in FACETS:
        plot.add_argument(f"--{place}", help="a parameter")
    plot.add_argument("--out", type=Path, help="file to write, .png, .pdf or .svg; default: in the sweep's plots/")
    plot.set_defaults(call=_later("table:plot"))


def seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 90, 30m or 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _later(name: str) -> Callable[[argparse.Namespace], int]:
    """What `name` calls, imported only then: pandas and Dask take seconds."""
    return lambda options: pkgutil.resolve_name(f"sibrepro.run.sweep.{name}")(options)
