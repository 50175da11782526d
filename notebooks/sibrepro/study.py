"""A study: one declaration of all that the project has to know of it, and how declarations are found.

Each folder of `sibrepro.studies` has a module `study` with a `STUDY`. Nothing else knows the name of a study: what is
published, verified, claimed, shown on the site or cited in the README is found by walking over `studies()`. A new study
is a new folder, with its notebook and parameter files, and no edit of any file that is there.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib import figure as matplotlib_figure

from sibrepro import params, paths, plots, tables
from sibrepro.claim import Claim
from sibrepro.facts import Experiment, Record

Runs = Mapping[Experiment, Sequence[Any]]  # settings of runs, by the experiment that computes them


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A published table.

    Attributes:
        title: as pages show it.
        make: the table as a data frame, from published runs.
        how: how its numbers follow from the runs that a row names, in a sentence for readers.
        records: runs behind the table as a whole; rows name their own in a column "run" or "runs".
        behind: the runs behind a row, for a table whose rows do not name them.
        own: picks the rows with the paper's numbers of its own method, which are counted by their verdict.
    """

    title: str
    make: Callable[[], pd.DataFrame]
    how: str
    records: Callable[[], Iterable[Record]] = tuple
    behind: Callable[[Mapping[str, Any]], Iterable[Record]] | None = None
    own: Callable[[pd.DataFrame], pd.DataFrame] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """A published figure that is drawn from published runs alone."""

    draw: Callable[[], matplotlib_figure.Figure]
    records: Callable[[], Iterable[Record]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """What the project knows of a study.

    Attributes:
        notebook: the name of the notebook that reports it, such as "06_query_size_ablation".
        parameters: the class of that notebook's parameters; None for a study that has no notebook of its own.
        asked: the runs that the notebook's parameters ask for, which `./run_all.sh` computes and compares.
        published: the runs behind its tables, figures and claims.
        tables: its published tables, by the name of their files.
        figures: its published figures, by the name of their files; others are drawn in the notebook's own cells.
        claims: what the paper says, beside what was found.
        cite: a number for the README and the documents, from the words of a comment there.
    """

    notebook: str
    parameters: type | None = None
    asked: Callable[[Any], Runs] = lambda parameters: {}
    published: Callable[[], Runs] = dict
    tables: Mapping[str, Table] = dataclasses.field(default_factory=dict)
    figures: Mapping[str, Figure] = dataclasses.field(default_factory=dict)
    claims: Callable[[], list[Claim]] = list
    cite: Callable[..., float] | None = None

    @property
    def number(self) -> str:
        """The number of its notebook, such as "06"."""
        return self.notebook.partition("_")[0]

    def planned(self) -> list[tuple[Experiment, Any]]:
        """Return every run that is, or is to be, published: of the tables, and of the notebook's quick profile."""
        parts = [self.published(), self.quick()]
        return [(experiment, p) for part in parts for experiment, several in part.items() for p in several]

    def quick(self) -> Runs:
        """Return the runs that the notebook asks for as a reader opens it."""
        if self.parameters is None:
            return {}
        return self.asked(self.parameters(**params.of_profile("quick", self.notebook)))

    def table(self, name: str) -> pd.DataFrame:
        """Make a table, write its files and return it, for a notebook's cell."""
        made = self.tables[name].make()
        tables.write(made, name, *self.tables[name].records())
        return made

    def draw(self, name: str) -> matplotlib_figure.Figure:
        """Draw a figure, write its files and return it, for a notebook's cell."""
        drawn = self.figures[name].draw()
        plots.save(drawn, name, *self.figures[name].records())
        return drawn


@functools.cache
def studies() -> dict[str, Study]:
    """Return all studies by the name of their folder, in the order of their notebooks."""
    names = [module.name for module in pkgutil.iter_modules([str(paths.PACKAGE / "studies")])]
    found = {name: importlib.import_module(f"sibrepro.studies.{name}.study").STUDY for name in names}
    return dict(sorted(found.items(), key=lambda item: (item[1].notebook, item[1].parameters is None)))


def planned() -> dict[Experiment, list[Any]]:
    """Return the settings of all runs that are, or are to be, published, by experiment."""
    found: dict[Experiment, list[Any]] = {}
    for study in studies().values():
        for experiment, settings in study.planned():
            found.setdefault(experiment, []).append(settings)
    return found


def all_tables() -> dict[str, Table]:
    """Return all declared tables by name, in the order of their studies."""
    return {name: table for study in studies().values() for name, table in study.tables.items()}
