"""Tables that show the paper's numbers beside ours, and the files that tables are written to.

A table has a row for every number of the paper and for every number of ours. Two numbers share a row if all their
settings are equal, and a verdict compares them. A number without a counterpart has its own row, and the verdict says
so. Accuracies are in percent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sibcore.files import write_atomically
from sibrepro import paper, paths
from sibrepro.facts import Record, manifest
from sibrepro.facts.experiment import named
from sibrepro.statistics import Score

# The verdicts on a number of ours.
INSIDE, ABOVE, BELOW = "inside the other's interval", "above", "below"
NOT_MEASURED, NOT_IN_PAPER = "not measured here", "not in the paper"
IN_APPENDIX = "only in the appendix"  # not in Table 1, but in `paper.synthetic_gradients`
OUR_FEATURES = " (our features)"
COMMAND = "./run_all.sh --only 03 --profile paper"  # measures all numbers of SIB in Table 1

# The columns that hold the settings of a number, and those that hold the numbers.
FEW_SHOT = ["dataset", "backbone", "method", "transductive", "K", "eta", "shots"]
SYNTHETIC_GRADIENTS = ["dataset", "backbone", "variant", "trained_shots", "tested_shots", "K", "eta"]
QUERY_SIZE = ["dataset", "backbone", "K", "eta", "n", "tested", "shots", "split"]
PAPER, OURS = ["paper", "paper_ci95"], ["ours", "ours_ci95"]

TYPES = {
    **dict.fromkeys((*paper.WHOLE, "episodes", "seeds", "steps"), "Int64"),
    **dict.fromkeys(("eta", *PAPER, *OURS), "float64"),
    "transductive": "boolean",
}
DATASETS = {"mini-imagenet": "mini-ImageNet", "cifar-fs": "CIFAR-FS"}
MISSING = "–"
# The characters that pandas' `to_latex` leaves as they are.
LATEX = {"±": r"$\pm$", "×": r"$\times$", "η": r"$\eta$", "ξ": r"$\xi$", "α": r"$\alpha$", MISSING: "--"}


def verdict(paper: float | None, paper_ci95: float | None, ours: float | None, ours_ci95: float | None) -> str:
    """Compare a number of ours with the paper's.

    They agree if one lies in the other's 95 % interval, that is if |ours - paper| is at most the wider of the two
    half-widths. A missing interval counts as zero. This is an aid for readers, not a test of equality: the intervals
    are over test tasks, and other seeds or backbones would widen them.
    """
    if pd.isna(ours):
        return NOT_MEASURED
    if pd.isna(paper):
        return NOT_IN_PAPER
    reach = max(0.0 if pd.isna(ci95) else ci95 for ci95 in (paper_ci95, ours_ci95))
    if abs(ours - paper) <= reach + 1e-9:  # printed decimals are not exact in binary
        return INSIDE
    return ABOVE if ours > paper else BELOW


def row(records: Sequence[Record], score: Score, **settings: Any) -> dict[str, Any]:
    """Return a row with a number of ours, for the tables below.

    Args:
        records: the runs that the number was computed from. The column "seeds" counts their seeds.
        score: the number and its 95 % interval.
        settings: the columns with the settings, such as `shots`. The data set, backbone and steps of the first run are
            added to them.
    """
    p = records[0].params
    of_runs = {name: p[name] for name in ("dataset", "backbone", "steps") if name in p}
    seeds = len({record.params.get("seed") for record in records})
    numbers = {"ours": score.mean, "ours_ci95": score.ci95, "episodes": p.get("test_episodes"), "seeds": seeds}
    return of_runs | settings | numbers | {"run": named(records)}


def few_shot(runs: pd.DataFrame) -> pd.DataFrame:
    """Return Table 1 of the paper with our numbers beside it.

    Only SIB's numbers get a verdict, where all settings are equal. For the other methods ours are named
    "<method> (our features)". They all use the same features and episodes, while in the paper each was trained in its
    own way, so a verdict would mean little.

    Args:
        runs: our numbers, as rows made by `row` with the settings `FEW_SHOT`.
    """
    if len(runs):
        others = ~runs["method"].str.contains("SIB")
        runs = runs.assign(method=runs["method"].mask(others, runs["method"] + OUR_FEATURES))
    table = _beside(paper.few_shot().dropna(subset="value"), runs, FEW_SHOT, ["episodes", "seeds", "run"])
    return table.assign(verdict=table["verdict"].mask(_in_appendix(table), IN_APPENDIX))


def synthetic_gradients(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the appendix's table over K and eta; `runs` are rows made by `row` with `SYNTHETIC_GRADIENTS`."""
    return _beside(paper.synthetic_gradients(), runs, SYNTHETIC_GRADIENTS, ["episodes", "seeds", "steps", "run"])


def query_size(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the appendix's table over n; `runs` are rows made by `row` with the settings `QUERY_SIZE`."""
    return _beside(paper.query_size(), runs, QUERY_SIZE, ["episodes", "seeds", "steps", "run"])


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Arrange the table of `few_shot` for reading: a row for each method, a column for each data set and shots.

    A cell has the paper's number, then **ours** and the verdict. For methods other than SIB it has the paper's number
    alone. The column "to measure" has the command that measures the numbers of SIB that are not measured yet.
    """
    rows = ["method", "backbone", "transductive"]
    shots = table["shots"].astype(str)
    cells = table.assign(
        method=[_label(number) for number in table.itertuples()],
        column=table["dataset"].replace(DATASETS) + " " + shots + "-shot",
        cell=[_cell(number) for number in table.itertuples()],
    )
    for twice in cells[cells.duplicated([*rows, "column"])].itertuples():
        raise ValueError(
            f"two numbers of ours for {twice.method}, {twice.backbone}, {twice.column}, the second from {twice.run}: "
            "give the methods different names"
        )
    columns = [f"{dataset} {shots}-shot" for dataset in DATASETS.values() for shots in (1, 5)]
    columns += [column for column in cells["column"].unique() if column not in columns]
    order = pd.MultiIndex.from_frame(cells[rows].drop_duplicates())
    shown = cells.pivot(index=rows, columns="column", values="cell").reindex(order)[columns]
    lacking = cells[cells["cell"].str.contains(NOT_MEASURED)].set_index(rows).index
    shown = shown.fillna(MISSING)
    shown["to measure"] = [COMMAND if method in lacking else "" for method in shown.index]
    return shown.reset_index()


def readable(value: Any) -> str:
    """Return the text of a cell. Numbers have two decimals, or three digits if they are smaller than 0.01."""
    if pd.isna(value):
        return MISSING
    if pd.api.types.is_bool(value):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return " ".join(str(value).split())
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 0.01 else f"{value:.3g}"


def markdown(table: pd.DataFrame) -> str:
    """Return the table in GitHub's Markdown, without its index. A cell may contain `**bold**`."""
    cells = table.astype(object).map(readable).map(lambda text: text.replace("|", r"\|"))
    text = cells.to_markdown(index=False, disable_numparse=True, colalign=_sides(table))
    return re.sub(" +", " ", text) + "\n"  # without padding, so that a new row changes no other row


def latex(table: pd.DataFrame) -> str:
    """Return the table as a LaTeX `tabular` with the rules of booktabs, without its index. `**bold**` becomes bold."""
    sides = "".join(side[0] for side in _sides(table))
    text = table.astype(object).map(readable).to_latex(index=False, escape=True, column_format=sides)
    text = text.replace("--", "-{}-{}")  # LaTeX would make a dash of an option such as --only
    for sign, code in LATEX.items():
        text = text.replace(sign, code)
    return re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", text)


def write(table: pd.DataFrame, name: str, *records: Record) -> list[Path]:
    """Write a table without its index as `<name>.csv` (exact), `<name>.md` and `<name>.tex` (rounded).

    Args:
        table: the table.
        name: the name of the files without their ending.
        records: the runs that the table as a whole was computed from. A comment in the rounded files names them.

    Returns:
        the paths of the three files.
    """
    runs = ", ".join(record.id for record in records)
    contents = {
        "csv": table.to_csv(index=False, lineterminator="\n"),
        "md": markdown(table) + (f"\n<!-- runs: {runs} -->\n" if runs else ""),
        "tex": (f"% runs: {runs}\n" if runs else "") + latex(table),
    }
    files = []
    for kind, text in contents.items():
        path = paths.tables() / f"{name}.{kind}"
        write_atomically(path, text.encode())
        manifest.note("table", paths.relative(path), runs=runs)
        files.append(path)
    return files


def _sides(table: pd.DataFrame) -> list[str]:
    """Return the side on which each column is aligned: "right" for numbers, otherwise "left"."""
    kinds = pd.api.types
    numeric = [kinds.is_numeric_dtype(kind) and not kinds.is_bool_dtype(kind) for kind in table.dtypes]
    return ["right" if number else "left" for number in numeric]


def _beside(printed: pd.DataFrame, runs: pd.DataFrame, settings: list[str], details: list[str]) -> pd.DataFrame:
    """Merge our numbers into the paper's, and add the verdicts.

    If two numbers of ours have the settings of one of the paper's, there is a row for each, with the paper's number.

    Args:
        printed: the paper's numbers.
        runs: our numbers.
        settings: the columns that have to be equal.
        details: the columns of ours that are shown besides.

    Returns:
        a row for each number of the paper, in its order, then our numbers without a counterpart.
    """
    columns = [*settings, *OURS, *details]
    lacking = [column for column in columns if column not in runs]
    if lacking and len(runs):
        raise ValueError(f"our runs lack the columns {lacking}: expected all of {columns}")
    ours = _no_step(_typed(runs.reindex(columns=columns))).assign(row=range(len(runs)))
    printed = _no_step(printed.rename(columns={"value": "paper", "ci95": "paper_ci95"}))
    matched = printed.merge(ours, on=settings, how="left")
    alone = ours[~ours["row"].isin(matched["row"])]
    table = pd.concat([matched, alone], ignore_index=True)[[*settings, *PAPER, *OURS, *details]]
    verdicts = [verdict(*numbers) for numbers in table[[*PAPER, *OURS]].itertuples(index=False)]
    return _typed(table).assign(verdict=verdicts)


def _no_step(table: pd.DataFrame) -> pd.DataFrame:
    """Set eta to missing and transductive to False where K = 0, because SIB then takes no step on the queries."""
    none = table["K"].eq(0).fillna(False).astype(bool)
    table = table.assign(eta=table["eta"].mask(none))
    return table.assign(transductive=table["transductive"].mask(none, False)) if "transductive" in table else table


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    """Give the columns in `TYPES` their types, which allow missing values."""
    return table.astype({name: kind for name, kind in TYPES.items() if name in table})


def _in_appendix(table: pd.DataFrame) -> pd.Series:
    """Tell which numbers are missing from Table 1 but are in the appendix, trained and tested on the same shots."""
    appendix = paper.synthetic_gradients().query("trained_shots == tested_shots")
    appendix = appendix.rename(columns={"variant": "method", "tested_shots": "shots"})
    appendix["transductive"] = (appendix["method"] == "SIB") & (appendix["K"] > 0)
    found = table.merge(appendix[FEW_SHOT], on=FEW_SHOT, how="left", indicator="side")["side"] == "both"
    return found & (table["verdict"] == NOT_IN_PAPER)


def _label(number: Any) -> str:
    """Return the method with its K and eta, such as "SIB, η = 0.001, K = 3"."""
    eta = "" if pd.isna(number.eta) else f", η = {number.eta:g}"
    steps = "" if pd.isna(number.K) else f", K = {number.K}"
    return number.method + eta + steps


def _cell(number: Any) -> str:
    """Return the cell of `wide` for a row of `few_shot`."""
    printed = interval(number.paper, number.paper_ci95)
    ours = f"**{interval(number.ours, number.ours_ci95)}**"
    if number.verdict in (INSIDE, ABOVE, BELOW):
        return f"{printed} / {ours} ({number.verdict})"
    if number.verdict == NOT_MEASURED:
        return f"{printed} / {NOT_MEASURED}" if "SIB" in number.method else printed
    return f"{MISSING} / {ours} ({number.verdict})"


def interval(value: float, ci95: float | None, decimals: int = 1) -> str:
    """Return a number with its 95 % interval as a text, such as "73.6 ± 0.2", or alone if it has no interval."""
    half = "" if ci95 is None or pd.isna(ci95) else f" ± {ci95:.{decimals}f}"
    return f"{value:.{decimals}f}{half}"
