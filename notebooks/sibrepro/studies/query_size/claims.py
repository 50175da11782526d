"""What the paper claims about the number of queries in training, and what we measured."""

from __future__ import annotations

from sibrepro import paper
from sibrepro.claim import AGREES, DIFFERS, FURTHER, OPEN, REMARK, Claim, points
from sibrepro.studies.query_size import plan
from sibrepro.studies.query_size.experiment import RESCALED
from sibrepro.studies.query_size.tables import difference

# A claim is judged in the first of these settings that is measured: the paper's own, then ours.
SETTINGS = {
    ("mini-imagenet", "conv4-128"): "mini-ImageNet, Conv‑4‑128",
    ("cifar-fs", "conv4-64"): "CIFAR-FS, Conv‑4‑64",
}


def claims() -> list[Claim]:
    """Return the claims that training with too many queries lowers the accuracy, for 1 and 5 shots.

    They compare training with n = 45 and with n = 10 queries per class, both tested with 15.
    """
    printed = paper.query_size().query("split == 'test'").set_index(["shots", "n"])["value"]
    shown = []
    for shots in (1, 5):
        fall = f"{printed[shots, 45] - printed[shots, 10]:+.1f}".replace("-", "−")
        theirs = f"{fall} points from $n=10$ to $n=45$ (mini-ImageNet)"
        claim = Claim(
            FURTHER,
            f"training with too many queries lowers the accuracy, {shots}‑shot",
            "appendix, query size",
            theirs,
            headline="Training with n = 45 queries instead of 10, 1-shot" if shots == 1 else "",
        )
        for (dataset, backbone), where in SETTINGS.items():
            if claim.verdict == OPEN:
                claim = _measured(claim, dataset, backbone, shots, where)
        shown.append(claim)
    return shown


def _measured(claim: Claim, dataset: str, backbone: str, shots: int, where: str) -> Claim:
    """Return the claim with what we measured in one setting, or unchanged if nothing is published.

    A SIB that was trained with n = 45 takes shorter steps when it is tested with 15 queries, and the accuracy may fall
    for this reason alone. So the verdict is "partly" if steps of the trained length undo half of the fall.
    """
    found, longer = plan.published(dataset), plan.published(dataset, RESCALED)
    few, many = found.get((backbone, shots, 10)), found.get((backbone, shots, 45))
    same_length = longer.get((backbone, shots, 45))
    if not (few and many and same_length):
        return claim
    fall, rest = difference(few, many), difference(few, same_length)
    verdict, note = DIFFERS, "the accuracy does not fall"
    if fall.mean + fall.ci95 < 0:
        verdict = REMARK if rest.mean > fall.mean / 2 else AGREES
        note = f"the step is shorter than in training; with its trained length, {points(rest)}"
    return claim.measured(f"{points(fall)} ({where})", verdict, [*few, *many, *same_length], note)
