"""Label your own pictures, run and check the notebooks, train and test SIB, sweep parameters."""

from __future__ import annotations

import argparse
import pkgutil
import re
import sys
from collections.abc import Callable
from pathlib import Path

from sibcore.apply import cli
from sibrepro import paths

SWEEP = ("run", "table", "plot", "-h", "--help")  # what may follow `sib sweep`; anything else is for `sib sweep run`
POINT = "Run a notebook once for each point of a grid. A point is one combination of parameter values."
EXAMPLE = "example: sib sweep notebooks/02_spinning_lines.ipynb -g K=1,3,5 -g seed=0:4 -p epochs 50 -j 2"


def main(arguments: list[str] | None = None) -> int:
    """Run `sib` with these arguments, by default those of the command line, and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["sweep"] and arguments[1:2] and arguments[1] not in SWEEP:
        arguments = ["sweep", "run", *arguments[1:]]  # the word `run` may be left out
    return cli.run(parser(), arguments)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command: the commands of `sibcore.apply.cli`, and those below."""
    whole, commands = cli.parser(__doc__)
    _add_notebooks(commands)
    _add_facts(commands)
    _add_models(commands)
    _add_few_shot(commands)
    _add_sweep(commands)
    return whole


def _add_notebooks(commands: argparse._SubParsersAction) -> None:
    """Add `sib run` and `sib report`."""
    run = commands.add_parser("run", help="run the notebooks through papermill")
    run.add_argument(
        "--profile",
        choices=paths.PROFILES,
        default="quick",
        help="how much to compute: minutes, hours, or the full protocol",
    )
    run.add_argument(
        "--only", action="append", default=[], metavar="02", help="run only this notebook; may be repeated"
    )
    run.add_argument("--force", action="store_true", help="run and compute everything again, even what did not change")
    run.add_argument("--list", action="store_true", help="list what would run and why, and run nothing")
    keep = "use this run, or the runs of this experiment, even if their code changed; they do not count as recomputed"
    run.add_argument("--keep", action="append", default=[], metavar="ID|EXPERIMENT", help=keep)
    run.add_argument("--report", action="store_true", help="build the report afterwards")
    run.set_defaults(call=_later("run.pipeline:main", checkout=True), out=None)

    report = commands.add_parser("report", help="build the HTML report from the notebooks, tables and runs")
    report.add_argument(
        "--out", type=Path, metavar="FOLDER", help="folder to write it to; default: results/local/report"
    )
    report.set_defaults(call=_later("run.pipeline:report", checkout=True))


def _add_facts(commands: argparse._SubParsersAction) -> None:
    """Add `sib verify`, `sib explain` and `sib publish`."""
    verify = commands.add_parser("verify", help="compute published runs again and compare, cheapest first")
    verify.add_argument("names", nargs="*", metavar="ID|EXPERIMENT", help="runs to verify; default: all")
    verify.add_argument("--sample", type=int, default=0, metavar="N", help="verify only N of them, drawn at random")
    verify.add_argument("--seed", type=int, default=0, help="seed of that draw")
    verify.add_argument(
        "--budget",
        type=seconds,
        default="10m",
        metavar="TIME",
        help="start no run after this time, such as 90s, 10m or 2h",
    )
    verify.set_defaults(call=_later("run.verify:main"))

    explain = commands.add_parser("explain", help="show where a number, a table or a run comes from")
    explain.add_argument(
        "what", metavar="NUMBER|TABLE|ID", help="a number such as 73.6, a table such as few_shot, or the id of a run"
    )
    explain.set_defaults(call=_later("run.explain:main"))

    publish = commands.add_parser(
        "publish", help="for maintainers: write the facts, notebooks, figures, tables and README"
    )
    publish.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="02",
        help="publish the facts and only this notebook; may be repeated",
    )
    publish.add_argument(
        "--only-facts", action="store_true", help="publish only the planned runs of this machine; draw nothing"
    )
    publish.add_argument(
        "--keep", action="append", default=[], metavar="ID", help="publish this run even if its code changed since"
    )
    publish.set_defaults(call=_later("run.publish:main", checkout=True))


def _add_models(commands: argparse._SubParsersAction) -> None:
    """Add `sib any-way` and `sib zoo`."""
    any_way = commands.add_parser("any-way", help="for maintainers: train and test the any-way SIBs")
    any_way.set_defaults(call=_later("studies.any_way.any_way:main"))
    zoo = commands.add_parser("zoo", help="for maintainers: write the trained models and their cards from the facts")
    zoo.set_defaults(call=_later("zoo:main"))


def _add_few_shot(commands: argparse._SubParsersAction) -> None:
    """Add `sib few-shot`."""
    few = commands.add_parser("few-shot", help="pretrain a backbone if needed, then meta-train and test SIB")
    few.add_argument("--data", default="cifar-fs", help="image set; `sib data list` lists them")
    few.add_argument(
        "--source", type=Path, help="file or folder of the image set; default: looked for in the folder SIB_DATA"
    )
    few.add_argument(
        "--backbone", default="conv4-64", help="feature network; it is pretrained unless a run of it exists"
    )
    shipped = "compute the features from images, or use those that come with the project"
    few.add_argument("--features", choices=["images", "shipped"], default="images", help=shipped)
    few.add_argument(
        "--shots", type=int, nargs="+", default=[1, 5], help="support images per class; one run for each value"
    )
    few.add_argument(
        "--K", type=int, nargs="+", default=[0, 1, 3, 5], help="synthetic gradient steps; one run for each value"
    )
    few.add_argument("--xi", default="mlp", help="synthetic gradient network xi, a name in sibcore.xi.XIS")
    few.add_argument("--seed", type=int, nargs="+", default=[0], help="random seeds; one run for each value")
    few.add_argument("--steps", type=int, default=40_000, help="meta-training steps")
    few.add_argument(
        "--views", type=int, default=0, help="augmented views per training image; 0 uses the images as they are"
    )
    both = "average the features over each image and its mirror image and, in a Conv-4, over neighbouring positions"
    few.add_argument("--averaged", action="store_true", help=both)
    few.add_argument(
        "--precision",
        choices=["float32", "bfloat16", "auto"],
        default="float32",
        help="of the features of images; auto is bfloat16 where the device multiplies it in hardware",
    )
    few.set_defaults(call=_few_shot)


def _add_sweep(commands: argparse._SubParsersAction) -> None:
    """Add `sib sweep` and its actions."""
    sweep = commands.add_parser(
        "sweep", help="run one notebook over a grid of parameters, on this machine or a Dask cluster"
    )
    actions = sweep.add_subparsers(dest="action", required=True)

    run = actions.add_parser(
        "run", help="run the grid; the word `run` may be left out", description=POINT, epilog=EXAMPLE
    )
    run.add_argument("notebook", type=Path, help="notebook to run")
    run.add_argument(
        "-g",
        "--grid",
        action="append",
        default=[],
        metavar="K=0,1,3",
        help="values of a parameter, or a range such as seed=0:5",
    )
    run.add_argument(
        "-f", "--file", action="append", default=[], type=Path, help="a file with a grid (YAML) or with points (CSV)"
    )
    run.add_argument(
        "-p", "--parameter", action="append", default=[], nargs=2, metavar=("NAME", "VALUE"), help="fix a parameter"
    )
    run.add_argument("--zip", action="store_true", help="pair the lists instead of multiplying them")
    run.add_argument("--profile", choices=paths.PROFILES, help="profile in notebooks/params/ for all other parameters")
    run.add_argument("--name", help="name of the folder in results/local/sweeps; default: that of the notebook")
    run.add_argument(
        "-j", "--processes", type=int, metavar="N", help="points computed at a time; default: one per core"
    )
    run.add_argument("--threads", type=int, metavar="N", help="threads per point; default: cores / points at a time")
    run.add_argument(
        "--timeout",
        type=seconds,
        metavar="TIME",
        help="time limit per point, such as 90s, 30m or 2h; a slower point counts as failed",
    )
    run.add_argument("--retry-failed", action="store_true", help="run failed points again")
    run.add_argument("--redo", action="store_true", help="execute all points again; valid runs are still loaded")
    run.add_argument("--dry-run", action="store_true", help="list the points and what would be done, and run nothing")
    run.add_argument(
        "--dask",
        default="local",
        metavar="ADDRESS",
        help="Dask scheduler, such as tcp://host:8786; `local` starts processes on this machine",
    )
    run.set_defaults(call=_later("run.sweep.run:main"))

    table = actions.add_parser(
        "table", help="write the table of a sweep again, for instance after calling papermill yourself"
    )
    table.add_argument("folder", type=Path, help="folder of the sweep")
    table.set_defaults(call=_later("run.sweep.table:main"))

    plot = actions.add_parser("plot", help="draw a metric of a sweep against a parameter")
    plot.add_argument("folder", type=Path, help="folder of the sweep")
    plot.add_argument("--x", required=True, help="parameter on the x axis")
    plot.add_argument("--y", required=True, help="metric on the y axis; the end of its name is enough if it is unique")
    for place, shown in {"hue": "colour", "style": "line style", "col": "columns", "row": "rows"}.items():
        plot.add_argument(f"--{place}", help=f"parameter shown as {shown}")
    plot.add_argument(
        "--out", type=Path, help="file to write (.png, .pdf or .svg); default: in the folder plots/ of the sweep"
    )
    plot.set_defaults(call=_later("run.sweep.table:plot"))


def seconds(text: str) -> float:
    """Return a time such as "90s", "10m" or "2h" in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: expected one such as 90s, 10m or 2h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def _later(name: str, checkout: bool = False) -> Callable[[argparse.Namespace], int]:
    """Return a function that imports a command only when it is called, because torch, pandas and Dask take seconds.

    Args:
        name: the module below `sibrepro` and the function in it, such as "run.verify:main".
        checkout: whether the command needs the notebooks.
    """

    def call(options: argparse.Namespace) -> int:
        if checkout:
            paths.need_checkout()
        return pkgutil.resolve_name(f"sibrepro.{name}")(options)

    return call


def _few_shot(options: argparse.Namespace) -> int:
    """Compute and print a run for each combination of shots, K and seed."""
    from sibcore import datasets
    from sibcore.device import pick_device, pick_precision
    from sibrepro.meta_training.training import FewShot, few_shot
    from sibrepro.params import grid

    data = datasets.load(options.data, options.source) if options.features == "images" else None
    names = ("backbone", "features", "xi", "steps", "views", "averaged")
    precision = pick_precision(options.precision, pick_device())
    base = FewShot(dataset=options.data, precision=precision, **{name: getattr(options, name) for name in names})
    for p in grid(base, shots=options.shots, K=options.K, seed=options.seed):
        record = few_shot(p, data)
        best = _accuracy(record.metrics, f"best/{p.shots}shot")
        last = _accuracy(record.metrics, f"last/{p.shots}shot")
        asked = f"{p.shots}-shot K={p.K} seed={p.seed}"
        print(f"{asked}: best checkpoint {best}, last {last}  ({record.id})", flush=True)
    return 0


def _accuracy(metrics: dict[str, float], name: str) -> str:
    """Return an accuracy with its 95 % interval as a text."""
    return f"{metrics[name]:.2f} ± {metrics[f'{name}_ci95']:.2f} %"


if __name__ == "__main__":
    sys.exit(main())
