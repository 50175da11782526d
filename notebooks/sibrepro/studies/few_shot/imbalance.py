"""Runs that test a trained SIB on unbalanced queries, and with the class labels in other orders.

The paper's tasks have the same number of queries in every class, which a method could exploit. And ξ is an MLP over the
k logits of a query, so it may treat the classes differently although their order means nothing. These runs ask how much
of SIB's gain depends on either.
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
from sibrepro.meta_training.settings import ALPHA, OLDEST, SPELLING, FewShot
from sibrepro.meta_training.training import FEW_SHOT, trained_with

ORDERS = 10  # The number of orders of the classes that are tried.


class Orders(nn.Module):
    """A SIB that answers each task under several orders of its classes.

    Args:
        sib: the trained model.
        orders: permutations of the class labels, `[P, k]`; class j is called `orders[i, j]` in order i.
    """

    def __init__(self, sib: SIB, orders: Tensor) -> None:
        super().__init__()
        self.sib, self.ways, self.dim = sib, sib.ways, sib.dim
        self.register_buffer("orders", orders)

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        """Return class probabilities, with every class back in its place.

        Args:
            support: unit-length support features, `[B, m, d]`.
            support_labels: their classes, `[B, m]`.
            query: unit-length query features, `[B, n, d]`.

        Returns:
            `[1 + P, B, n, k]`: first the average over all orders, then the probabilities under each order.
        """
        each = []
        for order in self.orders:
            logits = self.sib.answer(support, order[support_labels], query)
            each.append(logits[..., order].softmax(-1))
        return torch.stack([torch.stack(each).mean(0), *each])


def random_orders(count: int, ways: int, seed: int = 0) -> Tensor:
    """Return `count` orders of the classes, `[count, ways]`: the given order first, then random ones."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = [torch.randperm(ways, generator=generator) for _ in range(count - 1)]
    return torch.stack([torch.arange(ways), *shuffled])


def unbalanced(trained: Record) -> Record:
    """Return the run that tests the SIB of a few-shot run on unbalanced queries and other orders of the classes."""
    return UNBALANCED.run(FEW_SHOT.settings_of(trained), trained=trained)


def compute(p: FewShot, inputs: tuple[SIB, Banks]) -> Numbers:
    """Test on unbalanced queries, and under several orders of the classes.

    A SIB that takes no steps does not depend on the order of the classes, so that it is only tested on the queries.

    Returns:
        metrics: accuracies in percent, "balanced" and "unbalanced" (Dirichlet), each with "..._ci95"; under several
            orders of the classes: "orders/lowest", "orders/highest", "averaged" (of their averaged probabilities), and
            "orders/changed", the percentage of queries whose answer depends on the order.
        arrays: the number of correctly answered queries of each task, "balanced", "unbalanced", "averaged", and
            "orders" `[P, N]`.
    """
    sib, banks = inputs
    device, features, queries = pick_device(), banks["test"].features, p.ways * p.queries
    balanced = tasks(p, banks["test"], "test").to(device)
    spread = tasks(p, banks["test"], "test", ALPHA).to(device)
    scores = {"balanced": evaluate(sib, features, balanced), "unbalanced": evaluate(sib, features, spread)}
    if not (sib.transductive and sib.steps):
        return numbers(scores, queries)

    ordered = Orders(sib, random_orders(ORDERS, p.ways).to(device))
    accuracies, changed = [], []
    for probabilities, part in answers(ordered, features, balanced):
        answered = most_likely(probabilities)
        accuracies.append((answered == part.query_labels).double().mean(-1).cpu())
        changed.append((answered[1:] != answered[1]).any(0).double().mean(1).cpu())
    scores["averaged"], *each = map(Evaluation, torch.cat(accuracies, 1))
    metrics, arrays = numbers(scores, queries)
    means = [100 * score.mean for score in each]
    metrics |= {"orders/lowest": min(means), "orders/highest": max(means)}
    metrics |= {"orders/changed": 100 * torch.cat(changed).mean().item()}
    return metrics, arrays | {"orders": np.stack([score.right(queries) for score in each])}


UNBALANCED = Experiment(
    "class_imbalance", FewShot, compute, trained_with, oldest=OLDEST, spelling=SPELLING, tolerance={"*": 0.2}
)
