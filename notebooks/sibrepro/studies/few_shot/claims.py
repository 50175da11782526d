"""What the paper claims in Table 1, and what we measured."""

from __future__ import annotations

import pandas as pd

from sibrepro import paper, tables
from sibrepro.claim import FEW_SHOT, FURTHER, OF_NUMBERS, OPEN, Claim, above_zero, points
from sibrepro.studies.few_shot import plan
from sibrepro.studies.few_shot import tables as few_shot_tables

# The settings that need a large network or mini-ImageNet, and how a claim names them.
NETWORKS = {
    ("mini-imagenet", "conv4-64"): "mini-ImageNet, Conv‑4‑64, ",
    ("mini-imagenet", "conv4-128"): "mini-ImageNet, Conv‑4‑128, ",
    ("mini-imagenet", "wrn-28-10"): "mini-ImageNet, WRN‑28‑10, ",
    ("cifar-fs", "wrn-28-10"): "CIFAR-FS, WRN‑28‑10, ",
}
# The numbers of Table 1 among the headline claims, and how the README names them: image set, backbone, shots, K.
HEADLINES = {
    ("cifar-fs", "conv4-64", 1, 3): "SIB, K = 3, 1-shot (CIFAR-FS, Conv-4-64)",
    ("cifar-fs", "wrn-28-10", 1, 5): "SIB, K = 5, 1-shot (CIFAR-FS, WRN-28-10)",
    ("mini-imagenet", "conv4-128", 1, 3): "SIB, K = 3, 1-shot (mini-ImageNet, Conv-4-128)",
}


def claims() -> list[Claim]:
    """Return the claims on the gain of three steps, and one claim for each number of SIB in Table 1.

    The numbers that need a large network or mini-ImageNet are only claimed where they are measured.
    """
    table = few_shot_tables.table()
    return [*gains(), *numbers(table), *other_numbers(table)]


def gains() -> list[Claim]:
    """Return the claims that three synthetic gradient steps beat none on the same episodes, for 1 and 5 shots.

    A gain agrees with the paper if its interval lies above zero.
    """
    results = plan.published()
    found = few_shot_tables.gains(results)
    printed = paper.few_shot().query("dataset == 'cifar-fs' and backbone == 'conv4-64' and method == 'SIB'")
    printed = printed.set_index(["shots", "K"])["value"]
    shown = []
    for shots in (1, 5):
        text = f"{printed[shots, 3] - printed[shots, 0]:+.1f} points"
        if shots == 5:  # Table 1 tests on five shots what was trained on one shot.
            text += f"; {paper.gain_of_three_steps(5):+.1f} trained and tested on 5 shots (appendix)"
        claim = Claim(
            FEW_SHOT,
            f"three synthetic gradient steps beat none, {shots}‑shot",
            "Table 1",
            text,
            headline=f"Gain of three synthetic gradient steps, {shots}-shot (CIFAR-FS, Conv-4-64)"
            if shots == 1
            else "",
        )
        if shots in found:
            records = [*results.sib[shots, 0], *results.sib[shots, 3]]
            claim = claim.measured(points(found[shots]), above_zero(found[shots]), records)
        shown.append(claim)
    return shown


def numbers(
    table: pd.DataFrame,
    dataset: str = "cifar-fs",
    backbone: str = "conv4-64",
    where: str = "",
    part: str = FEW_SHOT,
) -> list[Claim]:
    """Return a claim for each number that Table 1 prints for SIB on one image set and backbone.

    Args:
        table: Table 1 with our numbers, as `tables.table` returns it.
        dataset: the image set. The default setting needs neither a large network nor mini-ImageNet.
        backbone: the feature network.
        where: how the claims name this setting; empty for the default one.
        part: the heading of the list of claims under which they stand.
    """
    setting = "dataset == @dataset and backbone == @backbone and method == 'SIB' and paper.notna()"
    rows = table.query(setting).sort_values(["shots", "K"])
    results, shown = plan.published(dataset, backbone), []
    for row in rows.itertuples():
        printed = f"{tables.interval(row.paper, row.paper_ci95)} %"
        headline = HEADLINES.get((dataset, backbone, row.shots, row.K), "")
        text = f"accuracy of SIB, {where}{row.shots}‑shot, $K={row.K}$"
        claim = Claim(part, text, "Table 1", printed, headline=headline)
        if (row.shots, row.K) in results.sib:
            ours = f"{tables.interval(row.ours, row.ours_ci95)} %"
            stronger = row.K == 0 and row.verdict == tables.ABOVE
            note = "our backbone is stronger; no step is taken" if stronger else ""
            claim = claim.measured(ours, OF_NUMBERS[row.verdict], results.sib[row.shots, row.K], note)
        shown.append(claim)
    return shown


def other_numbers(table: pd.DataFrame) -> list[Claim]:
    """Return the claims on the other networks and on mini-ImageNet, as far as they are measured."""
    found = []
    for (dataset, backbone), where in NETWORKS.items():
        found += numbers(table, dataset, backbone, where, FURTHER)
    return [claim for claim in found if claim.verdict != OPEN]
