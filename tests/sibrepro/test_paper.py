"""The transcription: counts, numbers looked up in the paper by hand, and relations its tables must have."""

from __future__ import annotations

import pandas as pd
import pytest

from sibcore.datasets.pacs import DOMAINS
from sibrepro import paper
from sibrepro.rivals import BASELINES


def pick(table: pd.DataFrame, **settings: object) -> tuple[float, float]:
    """The one printed (value, ci95) with these settings."""
    for name, value in settings.items():
        table = table[table[name] == value]
    assert len(table) == 1
    return table["value"].item(), table["ci95"].item()


def test_table_1_has_26_rows_of_four_cells_of_which_dashes_are_empty():
    table = paper.few_shot()
    assert len(table) == 26 * 4
    counts = table.dropna(subset="value").groupby(["dataset", "shots"]).size()
    assert counts.to_dict() == {("mini-imagenet", s): 26 for s in (1, 5)} | {("cifar-fs", s): 15 for s in (1, 5)}
    assert table["ci95"].isna().sum() == 2 * 11 + 4 + 2 + 2  # dashes, GNN, Matching Net, TPN


def test_table_1_keeps_the_papers_order():
    methods = paper.few_shot()["method"].to_numpy()[::4].tolist()
    assert methods[:3] == ["Matching Net", "MAML", "Prototypical Net"]
    assert methods[7:14] == ["Gidaris et al.", *["SIB"] * 6]
    assert methods[-5:] == ["Gidaris et al.", *["SIB"] * 4]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"method": "MAML", "dataset": "cifar-fs", "shots": 1}, (58.9, 1.9)),
        ({"method": "R2-D2", "dataset": "mini-imagenet", "shots": 5}, (65.4, 0.2)),
        ({"method": "CTM", "dataset": "mini-imagenet", "shots": 5}, (80.5, 0.1)),
        ({"method": "Gidaris et al.", "backbone": "wrn-28-10", "dataset": "cifar-fs", "shots": 5}, (86.1, 0.2)),
        ({"K": 0, "backbone": "conv4-64", "dataset": "cifar-fs", "shots": 1}, (59.2, 0.5)),
        ({"K": 3, "backbone": "conv4-64", "dataset": "mini-imagenet", "shots": 1}, (58.0, 0.6)),
        ({"K": 5, "backbone": "conv4-128", "dataset": "mini-imagenet", "shots": 1}, (63.26, 1.07)),
        ({"K": 5, "backbone": "wrn-28-10", "dataset": "cifar-fs", "shots": 1}, (80.0, 0.6)),
    ],
)
def test_numbers_of_table_1_are_those_printed(settings, expected):
    assert pick(paper.few_shot(), **settings) == expected


def test_only_sib_with_steps_and_two_others_are_transductive():
    table = paper.few_shot()
    sib = table["method"] == "SIB"
    assert table[sib]["transductive"].tolist() == (table[sib]["K"] > 0).tolist()
    assert set(table[~sib & table["transductive"]]["method"]) == {"TPN", "CTM"}
    assert table["K"].notna().tolist() == sib.tolist()


def test_the_table_of_synthetic_gradients_has_78_numbers_one_per_setting():
    table = paper.synthetic_gradients()
    settings = ["variant", "trained_shots", "tested_shots", "K", "eta"]
    assert len(table) == len(table[settings].drop_duplicates()) == 78
    assert table[["value", "ci95"]].notna().all(axis=None)
    assert table["eta"].isna().tolist() == (table["K"] == 0).tolist()
    where = {"variant": "inductive SIB", "tested_shots": 5, "K": 1, "eta": 0.1}
    assert pick(table, **where) == (71.2, 0.4)
    assert pick(table, variant="SIB", trained_shots=5, tested_shots=1, K=5, eta=0.01) == (67.7, 0.7)
    assert pick(table, variant="SIB", trained_shots=5, tested_shots=5, K=5, eta=1e-4) == (76.4, 0.4)


def test_table_1_prints_the_5_shot_accuracy_of_the_model_trained_on_1_shot():
    printed = pick(paper.few_shot(), method="SIB", K=3, backbone="conv4-64", dataset="cifar-fs", shots=5)
    appendix = paper.synthetic_gradients().query("variant == 'SIB' and K == 3 and eta == 0.001 and tested_shots == 5")
    assert printed == pick(appendix, trained_shots=1) == (77.1, 0.4)
    assert pick(appendix, trained_shots=5) == (78.4, 0.4)


def test_the_table_of_query_sizes_has_24_numbers_and_shares_its_n_15_with_table_1():
    table = paper.query_size()
    assert len(table) == len(table[["n", "shots", "split"]].drop_duplicates()) == 24
    assert pick(table, n=45, shots=1, split="validation") == (62.08, 0.51)
    for shots in (1, 5):
        printed = pick(paper.few_shot(), backbone="conv4-128", K=3, dataset="mini-imagenet", shots=shots)
        assert pick(table, n=15, shots=shots, split="test") == printed
    assert set(table["K"]) == {3}
    for _, group in table.groupby(["shots", "split"]):
        assert group.loc[group["value"].idxmax(), "n"] == 10  # the row the paper prints in bold


def test_the_averages_of_pacs_are_those_of_their_columns_up_to_rounding():
    table = paper.pacs()
    assert len(table) == 4 * 5
    wide = table.assign(K=table["K"].astype(object).fillna("")).pivot(
        index=["method", "K"], columns="target", values="value"
    )
    mean = wide[list(DOMAINS)].mean(axis=1)
    assert ((mean - wide["average"]).abs() <= 0.1).all()  # columns and average are each rounded by up to 0.05
    rounded_apart = (mean - wide["average"]).abs() > 0.05 + 1e-9
    assert rounded_apart[rounded_apart].index.tolist() == [("JiGen", "")]  # 85.775 against 85.7
    assert wide.loc[("Rot", ""), "sketch"] == 74.9


def test_the_setup_names_what_few_shot_needs_to_know():
    facts = paper.setup().set_index("what")["value"]
    assert facts["meta-training steps"] == "40000"
    assert facts["tasks per batch"] == "8"
    assert facts.index.is_unique
    assert paper.given().loc["meta-testing"].tolist() == [True, True, False]


def test_what_other_publications_print_is_of_known_methods_and_rises_with_the_shots():
    rows = paper.literature()
    assert set(rows["method"]) <= set(BASELINES)
    assert ((rows["one_shot"] > 20) & (rows["one_shot"] < rows["five_shot"]) & (rows["five_shot"] < 100)).all()
