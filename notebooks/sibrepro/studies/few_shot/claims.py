"""What the paper claims in Table 1, and what was measured of it."""

from __future__ import annotations

import dataclasses

import pandas as pd

from sibrepro import paper, tables
from sibrepro.claim import FEW_SHOT, FURTHER, OF_NUMBERS, OPEN, Claim, above_zero, points
from sibrepro.studies.few_shot import plan
from sibrepro.studies.few_shot import tables as few_shot_tables

NETWORKS = {  # of Table 1's other numbers
    ("mini-imagenet", "conv4-64"): "mini-ImageNet, Conv‑4‑64, ",
    ("mini-imagenet", "conv4-128"): "mini-ImageNet, Conv‑4‑128, ",
    ("mini-imagenet", "wrn-28-10"): "mini-ImageNet, WRN‑28‑10, ",
    ("cifar-fs", "wrn-28-10"): "CIFAR-FS, WRN‑28‑10, ",
}
# what Table 1 has of what is measured
OURS = "dataset == 'cifar-fs' and backbone == 'conv4-64' and method == 'SIB'"


def claims() -> list[Claim]:
    """Return the gains of three steps, the four numbers of the small network, and the others that are measured."""
    table = few_shot_tables.table()
    return [*gains(), *numbers(table), *other_numbers(table)]


def gains() -> list[Claim]:
    """What three synthetic gradient steps add, on the same tasks."""
    results = plan.published()
    found = few_shot_tables.gains(results)
    printed = paper.few_shot().query(OURS).set_index(["shots", "K"])["value"]
    shown = []
    for shots in (1, 5):
        text = f"{printed[shots, 3] - printed[shots, 0]:+.1f} points"
        if shots == 5:  # Table 1 prints the model trained on one shot
            text += f"; {paper.gain_of_three_steps(5):+.1f} trained and tested on 5 shots (appendix)"
        claim = Claim(FEW_SHOT, f"three synthetic gradient steps improve on none, {shots}‑shot", "Table 1", text)
        if shots in found:
            records = [*results.sib[shots, 0], *results.sib[shots, 3]]
            claim = claim.measured(points(found[shots]), above_zero(found[shots]), records)
        shown.append(claim)
    return shown


def numbers(table: pd.DataFrame, dataset: str = "cifar-fs", backbone: str = "conv4-64") -> list[Claim]:
    """The numbers of SIB in Table 1; by default the four that need neither a large network nor mini-ImageNet."""
    setting = "dataset == @dataset and backbone == @backbone and method == 'SIB' and paper.notna()"
    results, shown = plan.published(dataset, backbone), []
    where = NETWORKS.get((dataset, backbone), "")
    for row in table.query(setting).sort_values(["shots", "K"]).to_dict("records"):
        key = row["shots"], row["K"]
        theirs, ours = (f"{tables.interval(row[side], row[f'{side}_ci95'])} %" for side in ("paper", "ours"))
        claim = Claim(FEW_SHOT, f"SIB, {where}{key[0]}‑shot, $K={key[1]}$", "Table 1", theirs)
        if key in results.sib:
            stronger = row["K"] == 0 and row["verdict"] == tables.ABOVE
            note = "a stronger feature network: no step is taken" if stronger else ""
            claim = claim.measured(ours, OF_NUMBERS[row["verdict"]], results.sib[key], note)
        shown.append(claim)
    return shown


def other_numbers(table: pd.DataFrame) -> list[Claim]:
    """Return those of other networks and of mini-ImageNet, as far as they are measured."""
    found = [claim for origin in NETWORKS for claim in numbers(table, *origin) if claim.verdict != OPEN]
    return [dataclasses.replace(claim, part=FURTHER) for claim in found]
