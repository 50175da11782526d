"""Is SIB's gain real? Queries that are not balanced, and class labels in another order.

xi is an MLP over the k logits of a query: it may treat the classes differently, though their order means nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from sibcore.device import pick_device
from sibcore.episodes import Tasks
from sibcore.evaluate import Evaluation, answers, evaluate
from sibcore.sib import SIB
from sibrepro.facts import Record
from sibrepro.few_shot.experiment import Banks, Numbers, examine, tasks
from sibrepro.few_shot.settings import UNBALANCED, FewShot

ALPHA = 2.0  # of the Dirichlet distribution over the classes of the queries
ORDERS = 10  # of the classes


class AveragedOrders(nn.Module):
    """A SIB whose probabilities are averaged over several orders of the classes, `orders [P, k]`."""

    def __init__(self, sib: SIB, orders: Tensor) -> None:
        super().__init__()
        self.sib, self.ways, self.dim = sib, sib.ways, sib.dim
        self.register_buffer("orders", orders)

    def each(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        """The probabilities under each order, [P, B, n, k], with the classes put back into their places."""
        answers = []
        for order in self.orders:  # class j is called order[j]
            logits = self.sib.answer(support, order[support_labels], query)
            answers.append(logits[..., order].softmax(-1))
        return torch.stack(answers)

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        """Logits [B, n, k]"""
        return self.each(support, support_labels, query).mean(0).log()


def random_orders(count: int, ways: int, seed: int = 0) -> Tensor:
    """[count, ways]: the order as it is, then random ones."""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.arange(ways)] + [torch.randperm(ways, generator=generator) for _ in range(count - 1)])


def unbalanced(trained: Record) -> Record:
    """The run of trying the SIB of a few-shot run on less kind tasks.

    metrics: accuracies in percent, "balanced" and "unbalanced" (Dirichlet), each with "..._ci95"; under several orders
    of the classes: "orders/lowest", "orders/highest", "averaged" (of their averaged probabilities), and
    "orders/changed", the percentage of queries whose answer depends on the order
    arrays: queries answered rightly in each task, "balanced", "unbalanced", "averaged", and "orders" [P, N]
    """
    return examine(UNBALANCED, trained, _compute)


def _compute(sib: SIB, banks: Banks, p: FewShot) -> Numbers:
    device, bank, queries = pick_device(), banks["test"], p.ways * p.queries
    kind, unkind = (tasks(p, bank, "test", alpha).to(device) for alpha in (None, ALPHA))
    scores = {"balanced": evaluate(sib, bank.features, kind), "unbalanced": evaluate(sib, bank.features, unkind)}
    metrics, arrays = {}, {}
    if sib.transductive and sib.steps:
        averaged = AveragedOrders(sib, random_orders(ORDERS, p.ways).to(device))
        scores["averaged"], each, changed = _orders(averaged, bank.features, kind)
        arrays["orders"] = np.stack([score.right(queries) for score in each])
        means = [100 * score.mean for score in each]
        metrics = {"orders/lowest": min(means), "orders/highest": max(means), "orders/changed": 100 * changed}
    for name, score in scores.items():
        metrics |= {name: 100 * score.mean, f"{name}_ci95": 100 * score.interval}
        arrays[name] = score.right(queries)
    return metrics, arrays


def _orders(method: AveragedOrders, bank: Tensor, tasks: Tasks) -> tuple[Evaluation, list[Evaluation], float]:
    """The score of the average, the scores of the single orders, and the part of the queries on which they differ."""
    right: list[list[Tensor]] = [[] for _ in range(1 + len(method.orders))]
    changed = []
    for probabilities, part in answers(_Each(method), bank, tasks):
        said = [probabilities.mean(0).argmax(-1), *probabilities.argmax(-1)]
        for rows, answer in zip(right, said, strict=True):
            rows.append((answer == part.query_labels).double().mean(1).cpu())
        changed.append((probabilities.argmax(-1) != said[1]).any(0).double().mean(1).cpu())
    average, *each = (Evaluation(torch.cat(rows)) for rows in right)
    return average, each, torch.cat(changed).mean().item()


class _Each(nn.Module):
    """Answers with the probabilities of every order, [P, B, n, k]."""

    def __init__(self, method: AveragedOrders) -> None:
        super().__init__()
        self.method, self.ways, self.dim = method, method.ways, method.dim

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        return self.method.each(support, support_labels, query)
