"""Small copies of the published figures, for lists of figures and of notebooks."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from sibrepro import paths
from sibrepro.site.notebook_pages import Notebook, readable

WIDTH = 560  # in pixels: twice the width at which a thumbnail is shown, for screens of high resolution


@dataclasses.dataclass(frozen=True)
class Thumbnail:
    """A small copy of a figure.

    Attributes:
        name: the figure's name, such as "03_reliability".
        file: its address on the site.
        width: its width in pixels.
        height: its height in pixels.
        caption: a text for readers.
        target: where its link leads: to the cell that draws the figure.
        still: for an animation the address of its last frame, else nothing.
    """

    name: str
    file: str
    width: int
    height: int
    caption: str
    target: str
    still: str = ""

    @property
    def number(self) -> str:
        """Return the number of the notebook that draws the figure."""
        return self.name.partition("_")[0]

    @property
    def moves(self) -> bool:
        """Tell whether the figure is an animation."""
        return bool(self.still)


def write(folder: Path, notebooks: Sequence[Notebook]) -> list[Thumbnail]:
    """Write small copies of all published figures.

    Args:
        folder: where to write them.
        notebooks: the notebooks, to link the figures to their cells.
    """
    folder.mkdir()
    by_number = {notebook.number: notebook for notebook in notebooks}
    figures = paths.root() / "figures"
    files = sorted([*figures.glob("*.png"), *figures.glob("*.gif")])
    return [_written(file, folder, by_number.get(file.name.partition("_")[0])) for file in files]


def _written(file: Path, folder: Path, notebook: Notebook | None) -> Thumbnail:
    """Write the small copy of one figure. An animation is copied as it is, its last frame beside it."""
    address = f"{folder.name}/{file.name}"
    target = notebook.page if notebook else address
    if notebook and file.stem in notebook.figures:
        target += f"#{notebook.figures[file.stem]}"
    still = ""
    with Image.open(file) as picture:
        if file.suffix == ".gif":
            shutil.copyfile(file, folder / file.name)
            picture.seek(picture.n_frames - 1)
            picture.convert("RGB").save(folder / f"{file.stem}-still.png")
            still = f"{folder.name}/{file.stem}-still.png"
        else:
            picture.thumbnail((WIDTH, WIDTH))
            few_colours = picture.convert("RGB").quantize(128, Image.Quantize.FASTOCTREE)
            few_colours.save(folder / file.name)
        return Thumbnail(file.stem, address, picture.width, picture.height, readable(file.stem), target, still)
