"""`sib`, the command line: run and check the notebooks, get data, train and test SIB, sweep parameters."""

from __future__ import annotations

import argparse
import errno
import itertools
import sys
from pathlib import Path

from sibrepro import paths
from sibrepro.run.sweep import cli as sweep


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sib", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    run = commands.add_parser("run", help="run the notebooks through papermill")
    run.add_argument("--profile", choices=paths.PROFILES, default="quick", help="how much to compute")
    run.add_argument("--only", action="append", default=[], metavar="02", help="only this notebook; may be repeated")
    run.add_argument("--force", action="store_true", help="run and compute again even what did not change")
    run.add_argument("--list", action="store_true", help="say what would run, and why; run nothing")
    run.add_argument("--report", action="store_true", help="build the report at the end")
    run.set_defaults(call=_run)

    verify = commands.add_parser("verify", help="compute published runs again and compare, cheapest first")
    verify.add_argument("names", nargs="*", metavar="ID|EXPERIMENT", help="which; default: all")
    verify.add_argument("--sample", type=int, default=0, metavar="N", help="only N of them, drawn at random")
    verify.add_argument("--seed", type=int, default=0, help="of the drawing")
    verify.add_argument("--budget", default="10m", metavar="TIME", help="begin no run after this time: 90s, 10m, 2h")
    verify.set_defaults(call=_verify)

    publish = commands.add_parser("publish", help="for maintainers: write facts, notebooks, figures, tables and README")
    publish.add_argument("--only", action="append", default=[], metavar="02", help="only this notebook, and facts")
    publish.add_argument("--only-facts", action="store_true", help="publish planned runs of this machine, draw nothing")
    publish.set_defaults(call=_publish)

    scrub = commands.add_parser("scrub", help="strip machine-dependent metadata from notebooks, keeping their outputs")
    scrub.add_argument("notebooks", nargs="+", type=Path)
    scrub.set_defaults(call=_scrub)

    data = commands.add_parser("data", help="the image sets: list them, or download one")
    actions = data.add_subparsers(dest="action", required=True)
    actions.add_parser("list", help="say which there are, where they are, how to get them").set_defaults(
        call=_data_list
    )
    get = actions.add_parser("get", help="download one")
    get.add_argument("name", help="as `data list` says")
    get.add_argument(
        "--to",
        type=Path,
        metavar="FOLDER",
        help="where it goes; default: the cache folder; another is found if SIB_DATA names it",
    )
    get.add_argument("--accept-terms", action="store_true", help="you accept the terms of its owners, as ImageNet's")
    get.set_defaults(call=_data_get)

    few = commands.add_parser("few-shot", help="pretrain if need be, meta-train SIB and test it, as run records")
    few.add_argument("--data", default="cifar-fs", help="name of the image set, as `data list` says")
    few.add_argument("--source", type=Path, help="its file or folder; default: found through SIB_DATA")
    few.add_argument(
        "--backbone", default="conv4-64", help="feature network; pretrained now if there is no record of it"
    )
    few.add_argument(
        "--features",
        choices=["images", "shipped"],
        default="images",
        help="compute them from images, or take those that come with the project",
    )
    few.add_argument("--shots", type=int, nargs="+", default=[1, 5], help="one run for each")
    few.add_argument("--K", type=int, nargs="+", default=[0, 1, 3, 5], help="one run for each")
    few.add_argument("--seed", type=int, nargs="+", default=[0], help="one run for each")
    few.add_argument("--steps", type=int, default=40_000, help="meta-training steps")
    few.add_argument("--views", type=int, default=0, help="augmented views per training image; 0: as they are")
    few.set_defaults(call=_few_shot)

    ship = commands.add_parser("ship", help="write the features that come with the project anew, from images")
    ship.add_argument("--data", default="cifar-fs", help="name of the image set, as `data list` says")
    ship.add_argument("--source", type=Path, help="its file or folder; default: found through SIB_DATA")
    ship.add_argument("--backbone", default="conv4-64", help="feature network; pretrained if there is no record of it")
    ship.add_argument("--size", type=int, default=160, help="width of the images in pixels, of PACS")
    ship.set_defaults(call=_ship)

    report = commands.add_parser("report", help="build the HTML report from notebooks, tables and runs")
    report.add_argument("--out", type=Path, metavar="FOLDER", help="where it goes; default: results/local/report")
    report.set_defaults(call=_report)

    adapt = commands.add_parser("adapt", help="domain adaptation on PACS: train and test on a target, as run records")
    adapt.add_argument("--target", nargs="+", default=["art_painting", "cartoon", "photo", "sketch"], help="domains")
    adapt.add_argument("--method", default="SIB-Rot", help="source-only, Rot, SIB or SIB-Rot")
    adapt.add_argument("--K", type=int, nargs="+", default=[0, 3], help="one run for each; other methods have none")
    adapt.add_argument("--seed", type=int, nargs="+", default=[0], help="one run for each")
    adapt.add_argument("--backbone", default="efficientnet-lite0", help="feature network; or resnet18")
    adapt.add_argument(
        "--features",
        choices=["shipped", "frozen", "upper", "all"],
        default="frozen",
        help="those of the project; or from images, with nothing, the upper part or all of the network trained",
    )
    adapt.add_argument("--size", type=int, default=160, help="width of the images in pixels")
    adapt.add_argument("--steps", type=int, default=2000, help="training steps")
    adapt.set_defaults(call=_adapt)

    sweep.add_parser(commands)

    options = parser.parse_args(sweep.spelt_out(sys.argv[1:] if arguments is None else arguments))
    try:
        return options.call(options)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a folder that is not ours
        print(f"error: {_said(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; what was finished is kept, start again to go on", file=sys.stderr)
        return 130


HELP = {
    errno.ENOSPC: "make room there, or set SIB_OUTPUT (results) and SIB_CACHE (images) to folders on a larger disk",
    errno.EACCES: "set SIB_OUTPUT (results) and SIB_CACHE (images) to folders of yours, or ask their owner",
}
HELP |= {errno.EDQUOT: HELP[errno.ENOSPC], errno.EFBIG: HELP[errno.ENOSPC]}
HELP |= {errno.EROFS: HELP[errno.EACCES], errno.EPERM: HELP[errno.EACCES]}


def _said(error: OSError) -> str:
    """What the operating system said, on one line, and what to do about it."""
    where = f"{error.filename}: " if error.filename else ""
    advice = f"; {HELP[error.errno]}" if error.errno in HELP else ""
    return " ".join(f"{where}{error.strerror or error}{advice}".split())


def _run(options: argparse.Namespace) -> int:
    from sibrepro.run import pipeline

    todo = pipeline.jobs(options.profile, options.only)
    if options.list:
        for job in todo:
            why = "forced" if options.force else job.why()
            print(f"{job.name:<40} {'would run: ' + why if why else 'unchanged'}")
        return 0
    outcomes = pipeline.run_all(todo, options.force)
    print(pipeline.summary(outcomes))
    if options.report:
        _report(argparse.Namespace(out=None))
    return 1 if any(outcome.error for outcome in outcomes) or pipeline.disagreements(outcomes) else 0


def _verify(options: argparse.Namespace) -> int:
    from sibrepro.run import verify

    return verify.verify(options.names, options.sample, verify.seconds(options.budget), options.seed)


def _publish(options: argparse.Namespace) -> int:
    from sibrepro.run import publish

    if options.only_facts:
        print(*publish.facts(), sep="\n")
    else:
        publish.everything(options.only)
    return 0


def _scrub(options: argparse.Namespace) -> int:
    from sibrepro.run import notebook_files

    notebook_files.scrub(options.notebooks)
    return 0


def _data_list(options: argparse.Namespace) -> int:
    from sibcore.datasets import download

    print(download.overview())
    return 0


def _data_get(options: argparse.Namespace) -> int:
    from sibcore.datasets import download

    print(f"{options.name} is in {download.get(options.name, options.to, options.accept_terms)}")
    return 0


def _few_shot(options: argparse.Namespace) -> int:
    from sibcore import datasets
    from sibrepro.few_shot import experiment as few_shot

    data = datasets.load(options.data, options.source) if options.features == "images" else None
    names = ("backbone", "features", "steps", "views")
    settings = {name: getattr(options, name) for name in names} | {"dataset": options.data}
    for shots, K, seed in itertools.product(options.shots, options.K, options.seed):
        record = few_shot.few_shot(few_shot.FewShot(shots=shots, K=K, seed=seed, **settings), data)
        best, last = (
            f"{record.metrics[f'{n}/{shots}shot']:.2f} ± {record.metrics[f'{n}/{shots}shot_ci95']:.2f} %"
            for n in ("best", "last")
        )
        print(f"{shots}-shot K={K} seed={seed}: best checkpoint {best}, last {last}  ({record.id})", flush=True)
    return 0


def _adapt(options: argparse.Namespace) -> int:
    from sibrepro.pacs.experiment import Adaptation, turns_for
    from sibrepro.pacs.plan import train

    names = ("method", "backbone", "features", "size", "steps")
    settings = {name: getattr(options, name) for name in names}
    settings["turns"] = turns_for(options.features)
    steps = options.K if options.method in ("SIB", "SIB-Rot") else [0]
    for target, K, seed in itertools.product(options.target, steps, options.seed):
        (record,) = train([Adaptation(target=target, K=K, seed=seed, **settings)])
        accuracy = f"{record.metrics['accuracy']:.2f} %"
        print(f"{target}, {options.method}, K={K} seed={seed}: {accuracy}  ({record.id})", flush=True)
    return 0


def _ship(options: argparse.Namespace) -> int:
    from sibcore import datasets
    from sibcore.vision import rotations
    from sibrepro.few_shot import shipped
    from sibrepro.few_shot.experiment import pretrained_network
    from sibrepro.pacs import shipped as shipped_rotations

    if options.data == "pacs":
        data = datasets.load(options.data, options.source, size=options.size)
        bank = rotations.rotations(data, options.backbone)
        path = shipped_rotations.make(bank, data.name, options.backbone, options.size)
    else:
        data = datasets.load(options.data, options.source)
        path = shipped.make(data, pretrained_network(data, options.backbone))
    print(f"{paths.relative(path)}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


def _report(options: argparse.Namespace) -> int:
    from sibrepro import site
    from sibrepro.run import pipeline

    print(f"report: {site.build(options.out, pipeline.executed())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
