import math
import subprocess
import sys

import pytest
import torch

from sibcore import train as meta
from sibcore.episodes import EpisodeSampler, Tasks
from sibcore.evaluate import Evaluation, evaluate, most_likely
from sibcore.sib import SIB
from sibcore.train import SCHEDULES, Schedule, load_sib, train

CLASSES, PER_CLASS, DIM = 12, 30, 16


def gaussian_bank(seed: int = 0, spread: float = 0.7) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    centres = torch.randn(CLASSES, DIM, generator=g)
    return centres[labels] + spread * torch.randn(len(labels), DIM, generator=g), labels


def run(folder=None, *, steps=6, seed=0, report=lambda line: None, compile=False, **options):
    bank, labels = gaussian_bank()
    model = SIB(3, DIM, 2, 0.01, **options)
    validation = (bank, EpisodeSampler(labels, 3, 1, 5, seed=99).sample(0, 20))
    sampler = EpisodeSampler(labels, 3, 1, 5, seed=seed)
    schedule = Schedule(steps=steps, every=2, batch=4, lr=0.01)
    history = train(
        model, bank, sampler, schedule, validation=validation, folder=folder, report=report, compile=compile
    )
    return model, history


def same_parameters(a: SIB, b: SIB) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def without_speed(history):
    return [{name: value for name, value in row.items() if name != "steps_per_second"} for row in history]


@pytest.mark.thorough
def test_training_lowers_the_loss_and_raises_the_validation_accuracy():
    bank, labels = gaussian_bank(spread=2.0)
    sampler = EpisodeSampler(labels, 5, 1, 10, seed=1)
    validation = (bank, EpisodeSampler(labels, 5, 1, 10, seed=2).sample(0, 300))
    model = SIB(5, DIM, 3, 1e-2)
    before = evaluate(model, *validation).mean
    history = train(
        model, bank, sampler, Schedule(steps=300, every=100, lr=1e-2), validation=validation, report=lambda line: None
    )
    assert history[-1]["loss"] < history[0]["loss"]
    assert history[-1]["validation"] > before + 0.03
    assert history[-1]["validation"] == evaluate(model, *validation).mean


@pytest.mark.parametrize("options", [{}, {"fidelity": "paper"}, {"transductive": False}])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path, monkeypatch, options):
    whole, history = run(tmp_path / "whole", **options)
    calls = 0
    original = meta._train_steps

    def stop_in_the_third_part(*arguments):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(meta, "_train_steps", stop_in_the_third_part)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", **options)
    monkeypatch.setattr(meta, "_train_steps", original)
    resumed, resumed_history = run(tmp_path / "parts", **options)

    assert same_parameters(whole, resumed)
    assert without_speed(history) == without_speed(resumed_history)
    for name in (meta.LAST, meta.BEST):
        a, b = (load_sib(tmp_path / folder / name)[0] for folder in ("whole", "parts"))
        assert same_parameters(a, b)


def test_a_finished_run_is_loaded_and_not_trained_again(tmp_path, monkeypatch):
    trained, history = run(tmp_path)
    monkeypatch.setattr(meta, "_train_steps", None)
    loaded, again = run(tmp_path)
    assert same_parameters(trained, loaded)
    assert history == again


def test_best_and_last_are_both_kept(tmp_path, monkeypatch):
    scores = iter([0.5, 0.9, 0.7])
    monkeypatch.setattr(meta, "evaluate_each", lambda *_: [Evaluation(torch.tensor([next(scores)]))])
    model, _ = run(tmp_path)
    best, about = load_sib(tmp_path / meta.BEST)
    last, _ = load_sib(tmp_path / meta.LAST)
    assert about["history"][-1]["step"] == 4
    assert same_parameters(last, model)
    assert not same_parameters(best, last)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    run(tmp_path)
    with pytest.raises(ValueError, match=r"belongs to another run: its tasks is .*choose another folder"):
        run(tmp_path, seed=1)
    with pytest.raises(ValueError, match="its model is"):
        run(tmp_path, reduction="mean")
    with pytest.raises(ValueError, match="its schedule is"):
        run(tmp_path, steps=8)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    run(tmp_path)
    path = tmp_path / meta.LAST
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="is damaged"):
        run(tmp_path)


def test_one_step_is_plain_sgd_in_paper_fidelity_and_nesterov_with_decay_in_release():
    """First step, by hand: g + wd p, and with Nesterov's momentum (1 + mu) times that."""
    bank, labels = gaussian_bank()
    sampler = EpisodeSampler(labels, 3, 1, 5, seed=0)
    for fidelity, gain, decay in (("paper", 1.0, 0.0), ("release", 1.9, 5e-4)):
        model, fresh = SIB(3, DIM), SIB(3, DIM)
        schedule = SCHEDULES[fidelity]
        assert (schedule.steps, schedule.batch, schedule.lr) == (40_000, 8, 1e-3)
        one = Schedule(steps=1, momentum=schedule.momentum, weight_decay=schedule.weight_decay)
        train(model, bank, sampler, one, report=lambda line: None)
        tasks = sampler.sample(0, 8)
        logits = fresh(bank[tasks.support], tasks.support_labels, bank[tasks.query])
        torch.nn.functional.cross_entropy(logits.mT, tasks.query_labels).backward()
        for (name, p), q in zip(fresh.named_parameters(), model.parameters(), strict=True):
            expected = p - 1e-3 * gain * (p.grad + decay * p)
            assert torch.allclose(q, expected, atol=1e-7), name


def test_evaluation_agrees_with_a_loop_over_tasks_whatever_the_batch():
    bank, labels = gaussian_bank(spread=2.0)
    tasks = EpisodeSampler(labels, 4, 2, 5, seed=3).sample(0, 50)
    model = SIB(4, DIM, 3, 0.05)
    by_hand = []
    for i in range(50):
        logits = model(bank[tasks.support[i : i + 1]], tasks.support_labels[i : i + 1], bank[tasks.query[i : i + 1]])
        by_hand.append((logits.argmax(-1) == tasks.query_labels[i]).double().mean())
    by_hand = torch.stack(by_hand)
    for batch in (1, 7, 512):
        result = evaluate(model, bank, tasks, batch)
        assert torch.equal(result.accuracies, by_hand)
    assert result.mean == pytest.approx(by_hand.mean().item())
    assert result.interval == pytest.approx(1.96 * by_hand.numpy().std() / math.sqrt(50))


@pytest.mark.parametrize("last", [True, False])
def test_the_most_likely_class_is_that_of_argmax_the_first_of_equals(last):
    logits = torch.randint(3, (50, 7, 5), generator=torch.Generator().manual_seed(0)).float()
    logits = logits if last else logits.mT.contiguous().mT  # classes last in memory, or queries
    assert torch.equal(most_likely(logits), logits.argmax(-1))


def test_an_evaluation_reads_as_a_percentage_with_its_interval():
    accuracies = torch.tensor([0.5, 0.7], dtype=torch.float64)
    assert str(Evaluation(accuracies)) == "60.00 ± 13.86 %"  # 1.96 * 0.1 / sqrt(2)


def test_perfect_features_are_classified_perfectly():
    bank, labels = gaussian_bank(spread=1e-3)
    result = evaluate(SIB(5, DIM), bank, EpisodeSampler(labels, 5, 1, 15, seed=0).sample(0, 20))
    assert result.mean == 1.0
    assert result.interval == 0.0


def test_progress_reaches_a_log_without_a_terminal(capsys):
    run(report=None)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(word in lines[0] for word in ("step 2/6", "loss", "accuracy", "validation", "steps/s"))


def test_without_a_compiler_training_goes_on_eagerly(monkeypatch, capsys):
    def broken(function, **_):
        def call(*_):
            raise RuntimeError("no C++ compiler found\nmore text")

        return call

    expected, _ = run()
    monkeypatch.setattr(torch, "compile", broken)
    model, _ = run(compile=True)
    assert same_parameters(model, expected)
    assert "going on without: no C++ compiler found" in capsys.readouterr().err


@pytest.mark.thorough
def test_512_tasks_at_once_stay_under_two_gibibytes():
    code = """
import resource, torch
from sibcore.episodes import EpisodeSampler
from sibcore.evaluate import evaluate
from sibcore.sib import SIB
labels = torch.arange(20).repeat_interleave(600)
tasks = EpisodeSampler(labels, 5, 1, 15, seed=0).sample(0, 1024)
evaluate(SIB(5, 256), torch.rand(60_000, 256), tasks, batch=512)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(answer.stdout) * unit < 2 * 2**30


def test_bad_features_and_tasks_are_refused():
    bank, labels = gaussian_bank()
    sampler = EpisodeSampler(labels, 3, 1, 5, seed=0)
    tasks: Tasks = sampler.sample(0, 2)
    with pytest.raises(ValueError, match="1 of 360 features hold NaN or infinity, the first is row 17"):
        evaluate(SIB(3, DIM), bank.index_fill(0, torch.tensor([17]), torch.nan), tasks)
    with pytest.raises(ValueError, match="the tasks have 3 ways, but this SIB was made for 5"):
        evaluate(SIB(5, DIM), bank, tasks)
    with pytest.raises(ValueError, match=r"expected \[N, 8\] for this SIB, got \[360, 16\]"):
        evaluate(SIB(3, 8), bank, tasks)
    with pytest.raises(ValueError, match="draws from 360 rows"):
        train(SIB(3, DIM), bank[:-1], sampler)


def test_a_loss_that_explodes_is_reported():
    bank, labels = gaussian_bank()
    sampler = EpisodeSampler(labels, 3, 1, 5, seed=0)
    with pytest.raises(ValueError, match="NaN or infinite in steps 0 to 5: lower lr or eta"):
        train(SIB(3, DIM), bank, sampler, Schedule(steps=5, lr=1e30))


class Scaled(torch.nn.Module):
    """A model that is no SIB: nearest class means under learned weights of the features."""

    def __init__(self, ways: int = 3) -> None:
        super().__init__()
        self.ways, self.dim, self.setup = ways, DIM, {"ways": ways, "dim": DIM}
        self.weight = torch.nn.Parameter(torch.ones(DIM))

    def answer(self, support, support_labels, query):
        means = torch.stack([support[:, support_labels[0] == c].mean(1) for c in range(self.ways)], 1)
        return -torch.cdist(query * self.weight, means * self.weight) * 10


def test_adam_on_any_model_is_torchs_own_with_one_cycle():
    bank, labels = gaussian_bank()
    sampler = EpisodeSampler(labels, 3, 2, 5, seed=0)
    schedule = Schedule(optimiser="adam", steps=40, every=20, batch=4, lr=0.02)
    model, twin = Scaled(), Scaled()
    train(model, bank, sampler, schedule, report=lambda line: None)

    optimiser = torch.optim.Adam(twin.parameters(), lr=1.0)
    features = torch.nn.functional.normalize(bank, dim=-1)
    for step, tasks in enumerate(sampler.batches(0, 40, 4)):
        rate = (step + 1) / 4 if step + 1 < 4 else (1 + math.cos(math.pi * (step - 3) / 37)) / 2
        optimiser.param_groups[0]["lr"] = 0.02 * rate
        logits = twin.answer(features[tasks.support], tasks.support_labels, features[tasks.query])
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(logits.mT, tasks.query_labels).backward()
        optimiser.step()
    torch.testing.assert_close(model.weight, twin.weight, rtol=1e-5, atol=1e-6)
    assert (model.weight - 1).abs().max() > 0.05


def test_adam_goes_on_to_the_same_bits_after_a_stop(tmp_path):
    bank, labels = gaussian_bank()
    sampler = EpisodeSampler(labels, 3, 2, 5, seed=0)
    schedule = Schedule(optimiser="adam", steps=6, every=2, batch=4, lr=0.02)
    whole, parts, again = Scaled(), Scaled(), Scaled()
    train(whole, bank, sampler, schedule, folder=tmp_path / "whole", report=lambda line: None)

    class Enough(Exception):
        pass

    def stop(line):
        raise Enough

    with pytest.raises(Enough):
        train(parts, bank, sampler, schedule, folder=tmp_path / "parts", report=stop)
    train(again, bank, sampler, schedule, folder=tmp_path / "parts", report=lambda line: None)
    assert torch.equal(again.weight, whole.weight)
    assert not torch.equal(parts.weight, whole.weight)
