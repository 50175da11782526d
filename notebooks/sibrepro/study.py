"""`Study`: the declaration of a study, and how the project finds all declarations.

Each folder of `sibrepro.studies` has a module `study` with a constant `STUDY`. No other code names a study: commands
that publish, verify, explain, check claims, build the site or write the README walk over `studies()`. So a new study is
a new folder, a notebook and its parameter files. No existing file has to be edited.
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
        title: the title that pages show.
        make: computes the table from published runs, as a data frame.
        how: a sentence for readers that says how a row's numbers follow from the runs that the row names.
        records: returns the runs that the table as a whole is computed from. Rows name their own runs in a column "run"
            or "runs".
        behind: returns the runs that a row is computed from, if the table has no such column.
        own: selects the rows with the paper's numbers of its own method. The site counts their verdicts.
    """

    title: str
    make: Callable[[], pd.DataFrame]
    how: str
    records: Callable[[], Iterable[Record]] = tuple
    behind: Callable[[Mapping[str, Any]], Iterable[Record]] | None = None
    own: Callable[[pd.DataFrame], pd.DataFrame] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """A published figure.

    Attributes:
        draw: draws the figure from published runs alone.
        records: returns these runs. Their ids are written into the figure's files.
    """

    draw: Callable[[], matplotlib_figure.Figure]
    records: Callable[[], Iterable[Record]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """The declaration of a study.

    Attributes:
        notebook: the name of the notebook that reports it, such as "06_query_size_ablation".
        parameters: the class of that notebook's parameters. None if the study reports in another study's notebook.
        asked: returns the runs that the notebook computes, given its parameters.
        published: returns the runs that its tables, figures and claims are computed from.
        tables: its published tables, by the name of their files.
        figures: its published figures, by the name of their files. Short figures are drawn in the notebook's own cells.
        claims: returns the paper's claims beside what we found.
    """

    notebook: str
    parameters: type | None = None
    asked: Callable[[Any], Runs] = lambda parameters: {}
    published: Callable[[], Runs] = dict
    tables: Mapping[str, Table] = dataclasses.field(default_factory=dict)
    figures: Mapping[str, Figure] = dataclasses.field(default_factory=dict)
    claims: Callable[[], list[Claim]] = list

    @property
    def number(self) -> str:
        """Return the number of its notebook, such as "06"."""
        return self.notebook.partition("_")[0]

    def planned(self) -> list[tuple[Experiment, Any]]:
        """Return every run to be published, as pairs of experiment and settings.

        These are the runs of its tables, figures and claims, and those of the notebook's quick profile.
        """
        found = []
        for runs in (self.published(), self.quick()):
            for experiment, settings in runs.items():
                found += [(experiment, p) for p in settings]
        return found

    def quick(self) -> Runs:
        """Return the runs that the notebook computes with the parameters it is opened with, the quick profile."""
        if self.parameters is None:
            return {}
        return self.asked(self.parameters(**params.of_profile("quick", self.notebook)))

    def table(self, name: str) -> pd.DataFrame:
        """Compute a table, write its files and return it to be shown in a notebook."""
        made = self.tables[name].make()
        tables.write(made, name, *self.tables[name].records())
        return made

    def draw(self, name: str) -> matplotlib_figure.Figure:
        """Draw a figure, write its files and return it to be shown in a notebook."""
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
    """Return the settings of all runs to be published, by experiment."""
    found: dict[Experiment, list[Any]] = {}
    for study in studies().values():
        for experiment, settings in study.planned():
            found.setdefault(experiment, []).append(settings)
    return found


def all_tables() -> dict[str, Table]:
    """Return all declared tables by name, in the order of their studies."""
    return {name: table for study in studies().values() for name, table in study.tables.items()}
