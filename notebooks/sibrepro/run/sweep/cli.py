"""`sib sweep`: run one, gather its table again, draw from it."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from sibrepro import paths

ACTIONS = ("run", "table", "plot")
FACETS = ("hue", "style", "col", "row")
EXAMPLE = """examples:
  sib sweep notebooks/02_spinning_lines.ipynb -g K=1,3,5 -g seed=0:4 -p epochs 50 -j 2
  sib sweep plot results/sweeps/02_spinning_lines --x K --y spinning_lines.sum/mse --hue n"""


def spelt_out(arguments: list[str]) -> list[str]:
    """`sweep notebook.ipynb` means `sweep run notebook.ipynb`."""
    plain = arguments[:1] == ["sweep"] and arguments[1:2] and arguments[1] not in (*ACTIONS, "-h", "--help")
    return ["sweep", "run", *arguments[1:]] if plain else arguments


def add_parser(commands: argparse._SubParsersAction) -> None:
    sweep = commands.add_parser("sweep", help="run one notebook over a grid of parameters, here or on a Dask cluster")
    actions = sweep.add_subparsers(dest="action", required=True)

    layout = argparse.RawDescriptionHelpFormatter
    run = actions.add_parser(
        "run", help="run it; the word `run` may be left out", epilog=EXAMPLE, formatter_class=layout
    )
    run.add_argument("notebook", type=Path)
    run.add_argument("-g", "--grid", action="append", default=[], metavar="K=0,1,3", help="values; or seed=0:5")
    run.add_argument("-f", "--file", action="append", default=[], type=Path, help="a grid as YAML, or points as CSV")
    run.add_argument("-p", "--parameter", action="append", default=[], nargs=2, metavar=("NAME", "VALUE"), help="fixed")
    run.add_argument("--zip", action="store_true", help="pair the lists instead of multiplying them")
    run.add_argument("--profile", choices=paths.PROFILES, help="take what is not given from notebooks/params/")
    run.add_argument("--name", help="of the folder in results/sweeps; default: the notebook's")
    run.add_argument("-j", "--processes", type=int, metavar="N", help="points at a time; default: one per core")
    run.add_argument("--threads", type=int, metavar="N", help="of each point; default: cores / points at a time")
    run.add_argument(
        "--timeout", type=seconds, metavar="TIME", help="of a point: 90, 30m, 2h; it then counts as failed"
    )
    run.add_argument("--retry-failed", action="store_true", help="run failed points again")
    run.add_argument("--redo", action="store_true", help="execute all points again; valid run records are still loaded")
    run.add_argument("--dry-run", action="store_true", help="list the points and what would be done; run nothing")
    run.add_argument("--dask", metavar="ADDRESS", help="tcp://host:8786, or local: run the points on a Dask cluster")
    run.set_defaults(call=_run)

    table = actions.add_parser("table", help="write the table again, for instance after plain papermill calls")
    table.add_argument("folder", type=Path)
    table.set_defaults(call=_table)

    plot = actions.add_parser("plot", help="draw a metric against a parameter")
    plot.add_argument("folder", type=Path)
    plot.add_argument("--x", required=True, help="a parameter")
    plot.add_argument("--y", required=True, help="a metric; the end of its name will do if that is clear")
    for place in FACETS:
        plot.add_argument(f"--{place}", help="a parameter")
    plot.add_argument("--out", type=Path, help="file to write, .png, .pdf or .svg; default: in the sweep's plots/")
    plot.set_defaults(call=_plot)


def seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 90, 30m or 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _run(options: argparse.Namespace) -> int:
    from sibrepro.run.sweep import plan

    return plan.run(options)


def _table(options: argparse.Namespace) -> int:
    from sibrepro.run.sweep import table

    print(f"{len(table.write(options.folder))} points in {options.folder / 'table.csv'} and table.parquet")
    return 0


def _plot(options: argparse.Namespace) -> int:
    from sibrepro.run.sweep import plot, table

    facets = {place: getattr(options, place) for place in FACETS}
    grid = plot.plot(table.collect(options.folder), options.x, options.y, **facets)
    file = options.out or plot.default_file(options.folder, options.x, options.y, **facets)
    print(f"drawn in {plot.save(grid, file)}")
    return 0
