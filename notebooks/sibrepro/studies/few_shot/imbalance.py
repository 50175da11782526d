"""Is SIB's gain real? Queries that are not balanced, and class labels in another order, as runs.

xi is an MLP over the k logits of a query and may treat the classes differently, though their order means nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from sibcore.device import pick_device
from sibcore.evaluate import Evaluation, answers, evaluate, most_likely
from sibcore.sib import SIB
from sibrepro.facts import Experiment, Numbers, Record
from sibrepro.meta_training.banks import Banks, numbers, tasks
from sibrepro.meta_training.settings import ALPHA, OLDEST, FewShot
from sibrepro.meta_training.training import FEW_SHOT, trained_with

ORDERS = 10  # of the classes


class Orders(nn.Module):
    """A SIB under several orders of the classes, `orders [P, k]`."""

    def __init__(self, sib: SIB, orders: Tensor) -> None:
        super().__init__()
        self.sib, self.ways, self.dim = sib, sib.ways, sib.dim
        self.register_buffer("orders", orders)

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        """The probabilities [1 + P, B, n, k]: averaged over the orders, then under each, every class in its place."""
        each = []
        for order in self.orders:  # class j is called order[j]
            logits = self.sib.answer(support, order[support_labels], query)
            each.append(logits[..., order].softmax(-1))
        return torch.stack([torch.stack(each).mean(0), *each])


def random_orders(count: int, ways: int, seed: int = 0) -> Tensor:
    """[count, ways]: the order as it is, then random ones."""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.arange(ways)] + [torch.randperm(ways, generator=generator) for _ in range(count - 1)])


def unbalanced(trained: Record) -> Record:
    """Return the run of trying the SIB of a few-shot run on less kind tasks."""
    return UNBALANCED.run(FEW_SHOT.settings_of(trained), trained=trained)


def compute(p: FewShot, inputs: tuple[SIB, Banks]) -> Numbers:
    """Test on unbalanced queries, and under other orders of the classes.

    Returns:
        metrics: accuracies in percent, "balanced" and "unbalanced" (Dirichlet), each with "..._ci95"; under several
            orders of the classes: "orders/lowest", "orders/highest", "averaged" (of their averaged probabilities), and
            "orders/changed", the percentage of queries whose answer depends on the order.
        arrays: queries answered rightly in each task, "balanced", "unbalanced", "averaged", and "orders" [P, N].
    """
    sib, banks = inputs
    device, bank, queries = pick_device(), banks["test"], p.ways * p.queries
    kind, unkind = (tasks(p, bank, "test", alpha).to(device) for alpha in (None, ALPHA))
    scores = {"balanced": evaluate(sib, bank.features, kind), "unbalanced": evaluate(sib, bank.features, unkind)}
    if not (sib.transductive and sib.steps):
        return numbers(scores, queries)
    right, changed = [], []
    for probabilities, part in answers(Orders(sib, random_orders(ORDERS, p.ways).to(device)), bank.features, kind):
        said = most_likely(probabilities)
        right.append((said == part.query_labels).double().mean(-1).cpu())
        changed.append((said[1:] != said[1]).any(0).double().mean(1).cpu())
    scores["averaged"], *each = map(Evaluation, torch.cat(right, 1))
    metrics, arrays = numbers(scores, queries)
    means = [100 * score.mean for score in each]
    metrics |= {"orders/lowest": min(means), "orders/highest": max(means)}
    metrics |= {"orders/changed": 100 * torch.cat(changed).mean().item()}
    return metrics, arrays | {"orders": np.stack([score.right(queries) for score in each])}


UNBALANCED = Experiment("realism", FewShot, compute, trained_with, oldest=OLDEST, tolerance={"*": 0.2})
