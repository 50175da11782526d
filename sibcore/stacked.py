"""Meta-training of many SIBs in one pass, each of them as if trained alone with `sibcore.train.train`.

Models that share a stream of tasks share the work on its features (see `sibcore.stack`), and all share the overhead of
a step. The loss is a sum over models, so that their gradients do not mix.

    <folder>/stack.safetensors             parameters, momenta and histories of all at the last checkpoint
    <folder>/<s>-<e>/best.safetensors      each model as `sibcore.train.train` leaves it: at its best validation so far,
    <folder>/<s>-<e>/last.safetensors      and at the end
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from sibcore import train as meta
from sibcore.episodes import EpisodeSampler, Tasks
from sibcore.files import momenta_of, resume, weights_of, write_tensors
from sibcore.sib import SIB
from sibcore.stack import Stacked, stack_loss
from sibcore.train import Evaluation, Schedule

STACK = "stack.safetensors"


@torch.no_grad()
def evaluate(stack: Stacked, bank: Tensor, tasks: Tasks, batch: int = 32) -> list[list[Evaluation]]:
    """[S][E]: each model on the same tasks of `bank [N, d]`."""
    bank = meta.unit_bank(stack, bank, tasks.classes.shape[1])
    accuracies = []
    for start in range(0, len(tasks), batch):
        part = tasks[start : start + batch]
        support, labels, query = meta.rows(bank, part.support), part.support_labels, meta.rows(bank, part.query)
        logits = stack(*(value.expand(len(stack.models), *value.shape) for value in (support, labels, query)))
        accuracies.append((logits.argmax(2) == part.query_labels).double().mean(-1).cpu())
    every = torch.cat(accuracies, -1)  # [E, S, T]
    return stack.grid(lambda s, e: Evaluation(stack.part(s, e, {"": every})[""]))


def train(
    models: Sequence[Sequence[SIB]],
    bank: Tensor,
    samplers: Sequence[EpisodeSampler],
    schedule: Schedule | None = None,
    *,
    validation: tuple[Tensor, Tasks] | None = None,
    folder: Path | None = None,
    compile: bool = False,
    report: Callable[[str], None] | None = None,
) -> list[list[list[dict[str, Any]]]]:
    """Train the models [S][E] in place, those of stream s on the tasks of `samplers[s]`, and return histories [S][E].

    Arguments and histories are those of `sibcore.train.train`, with one difference: a model whose loss becomes NaN or
    infinite does not stop the others. Its numbers say so.
    """
    schedule = schedule or Schedule()
    stack = Stacked(models)
    _check_samplers(stack, samplers)
    features = meta.training_bank(stack, bank, samplers[0])
    optimizer = meta.sgd(stack, schedule)
    about = {
        "models": stack.grid(lambda s, e: models[s][e].setup),
        "tasks": [sampler.setup for sampler in samplers],
        "schedule": asdict(schedule),
        "data": meta.digest(bank, validation),
        "histories": stack.grid(lambda s, e: []),
    }
    if folder:
        same = ("models", "tasks", "schedule", "data")
        about = resume(Path(folder) / STACK, stack, optimizer, about, same)
    histories = about["histories"]
    loss_of = meta.compiled(stack_loss) if compile else stack_loss

    def part(start: int, stop: int, bar: tqdm) -> str:
        rows = _train_steps(stack, features, samplers, schedule, optimizer, loss_of, start, stop, bar)
        scores = evaluate(stack, *validation) if validation else None
        for s, e in stack.places():
            if scores:
                rows[s][e] |= {"validation": scores[s][e].mean, "interval": scores[s][e].interval}
            histories[s][e].append(rows[s][e])
        if folder:
            _save(Path(folder), stack, optimizer, about)
        return _line(list(itertools.chain(*rows)), schedule.steps)

    meta.run_parts(part, len(histories[0][0]), schedule, report)
    stack.unstack()
    if folder:
        momenta = momenta_of(stack, optimizer)
        for s, e in stack.places():
            tensors = weights_of(models[s][e]) | stack.part(s, e, momenta)
            write_tensors(Path(folder) / f"{s}-{e}" / meta.LAST, tensors, _about_one(about, s, e))
    return histories


def _train_steps(
    stack: Stacked,
    bank: Tensor,
    samplers: Sequence[EpisodeSampler],
    schedule: Schedule,
    optimizer: torch.optim.SGD,
    loss_of: Callable[..., tuple[Tensor, Tensor]],
    start: int,
    stop: int,
    bar: tqdm,
) -> list[list[dict[str, Any]]]:
    began = time.perf_counter()
    sums = {"loss": torch.zeros_like(stack.scale), "accuracy": torch.zeros_like(stack.scale)}  # [E, S]
    for streams in zip(*(sampler.batches(start, stop, schedule.batch) for sampler in samplers), strict=True):
        support, support_labels, query, query_labels = (
            torch.stack([getattr(tasks, name) for tasks in streams])
            for name in ("support", "support_labels", "query", "query_labels")
        )
        features = meta.rows(bank, support), support_labels, meta.rows(bank, query)
        losses, accuracies = loss_of(stack, *features, query_labels)
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()
        sums["loss"] += losses.detach()
        sums["accuracy"] += accuracies
        bar.update()
    rate = (stop - start) / (time.perf_counter() - began)
    means = {name: (total / (stop - start)).detach() for name, total in sums.items()}
    return stack.grid(
        lambda s, e: (
            {"step": stop}
            | {name: value.item() for name, value in stack.part(s, e, means).items()}
            | {"steps_per_second": rate}
        )
    )


def _save(folder: Path, stack: Stacked, optimizer: torch.optim.SGD, about: dict[str, Any]) -> None:
    """The stack goes last: a crash before it leaves an older one, which makes the same `best` again."""
    for s, stream in enumerate(stack.unstack()):
        for e, model in enumerate(stream):
            meta.save_best(folder / f"{s}-{e}", model, _about_one(about, s, e))
    write_tensors(folder / STACK, weights_of(stack) | momenta_of(stack, optimizer), about)


def _about_one(about: dict[str, Any], s: int, e: int) -> dict[str, Any]:
    """What `sibcore.train.train` says in the files of one model."""
    one = {"model": about["models"][s][e], "tasks": about["tasks"][s], "history": about["histories"][s][e]}
    return one | {name: about[name] for name in ("schedule", "data")}


def _line(rows: list[dict[str, Any]], steps: int) -> str:
    def span(name: str, factor: float, digits: int) -> str:
        values = [factor * row[name] for row in rows if math.isfinite(row["loss"])] or [math.nan]
        return f"{min(values):.{digits}f} to {max(values):.{digits}f}"

    checked = f"  validation {span('validation', 100, 2)} %" if "validation" in rows[0] else ""
    learned = f"loss {span('loss', 1, 4)}  accuracy {span('accuracy', 100, 2)} %{checked}"
    lost = sum(not math.isfinite(row["loss"]) for row in rows)
    diverged = f"  {lost} of {len(rows)} models diverged" if lost else ""
    return f"step {rows[0]['step']}/{steps}  {learned}{diverged}  {meta.pace(rows[0], steps)}"


def _check_samplers(stack: Stacked, samplers: Sequence[EpisodeSampler]) -> None:
    if len(samplers) != len(stack.models):
        raise ValueError(f"{len(stack.models)} streams of models need as many samplers, got {len(samplers)}")
    for sampler in samplers:
        if sampler.setup | {"seed": 0} != samplers[0].setup | {"seed": 0} or sampler.rows != samplers[0].rows:
            raise ValueError(f"samplers may differ in seed only: {sampler.setup} is not like {samplers[0].setup}")
