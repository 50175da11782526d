import copy
import math

import pytest
import torch

from sibcore import files
from sibcore import train as meta
from sibcore.episodes import EpisodeSampler
from sibcore.evaluate import Evaluation, evaluate, evaluate_each
from sibcore.files import read_tensors
from sibcore.group import OneByOne, grouped
from sibcore.sib import SIB
from sibcore.stack import Stacked
from sibcore.train import Schedule, load_sib, train

CLASSES, PER_CLASS, WAYS, DIM = 8, 20, 3, 10
ETAS = (0.03, 0.01, 0.001)  # larger ones make training chaotic, see below


def gaussian_bank() -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    centres = torch.randn(CLASSES, DIM, generator=g, dtype=torch.float64)
    return centres[labels] + 1.5 * torch.randn(len(labels), DIM, generator=g, dtype=torch.float64), labels


def grid(steps=(2, 2, 2), etas=ETAS, streams=2, **options) -> list[list[SIB]]:
    """Models that differ in eta, in xi's seed and in lambda's initial weights."""
    models = [
        [
            SIB(WAYS, DIM, K, eta, seed=10 * s + e, **options).double()
            for e, (K, eta) in enumerate(zip(steps, etas, strict=True))
        ]
        for s in range(streams)
    ]
    for s, stream in enumerate(models):
        for e, model in enumerate(stream):
            g = torch.Generator().manual_seed(10 * s + e)
            model.prototype_weight.data += 0.2 * torch.randn(DIM, generator=g, dtype=torch.float64)
    return models


def samplers(shots=1, streams=2) -> list[EpisodeSampler]:
    return [EpisodeSampler(gaussian_bank()[1], WAYS, shots, 4, seed=s) for s in range(streams)]


def validation(shots=1):
    bank, labels = gaussian_bank()
    return bank, EpisodeSampler(labels, WAYS, shots, 4, seed=99).sample(0, 40)


def run(models, folder=None, *, steps=6, shots=1, report=lambda line: None, compile=False):
    schedule = Schedule(steps=steps, every=2, batch=4, lr=0.01)
    bank, _ = gaussian_bank()
    streams = samplers(shots, len(models))
    options = {"validation": validation(shots), "folder": folder, "report": report, "compile": compile}
    return train(models, bank, streams, schedule, **options)


def same_parameters(a: SIB, b: SIB) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def without_speed(histories):
    drop = {"steps_per_second"}
    return [
        [[{k: v for k, v in row.items() if k not in drop} for row in one] for one in stream] for stream in histories
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("shots", [1, 5])
@pytest.mark.parametrize(
    ("steps", "options"),
    [
        ((0, 0, 0), {}),
        ((1, 1, 1), {"reduction": "mean"}),
        ((3, 3, 3), {}),
        ((3, 3, 3), {"normalise": "none"}),
        ((1, 0, 3), {}),
        ((0, 0, 0), {"transductive": False}),
        ((1, 3, 0), {"transductive": False}),
        ((3, 3, 3), {"transductive": False, "reduction": "mean"}),
    ],
)
def test_training_together_is_training_each_alone(steps, options, shots):
    together, alone = grid(steps, **options), grid(steps, **options)
    bank, _ = gaussian_bank()
    schedule = Schedule(steps=20, every=8, batch=4, lr=0.003)
    checked = validation(shots)
    quiet = {"validation": checked, "report": lambda line: None}
    histories = train(together, bank, samplers(shots), schedule, **quiet)
    for s, sampler in enumerate(samplers(shots)):
        for e, model in enumerate(alone[s]):
            expected = train(model, bank, sampler, schedule, **quiet)
            for (name, mine), theirs in zip(together[s][e].named_parameters(), model.parameters(), strict=True):
                assert torch.allclose(mine, theirs, rtol=0, atol=1e-9), (s, e, name)
            for row, other in zip(histories[s][e], expected, strict=True):
                assert row.keys() == other.keys()
                assert row["step"] == other["step"]
                assert row["loss"] == pytest.approx(other["loss"], abs=1e-9)
                for name in ("accuracy", "validation", "interval"):
                    assert row[name] == pytest.approx(other[name], abs=1e-7)


@pytest.mark.parametrize("eta", [0.1, 0.2])
def test_with_large_steps_it_differs_from_training_alone_no_more_than_a_last_bit_does(eta):
    """Such training multiplies any error, step after step; one in the last bit of the start shows by how much."""
    together, alone, touched = (grid((3, 3, 3), [eta] * 3, streams=1) for _ in range(3))
    bank, _ = gaussian_bank()
    schedule, quiet = Schedule(steps=6, every=6, batch=4, lr=0.003), {"report": lambda line: None}
    train(together, bank, samplers(streams=1), schedule, **quiet)
    for model in touched[0]:
        for parameter in model.parameters():
            parameter.data *= 1 + 2 * torch.finfo(torch.float64).eps
    for model in alone[0] + touched[0]:
        train(model, bank, samplers(streams=1)[0], schedule, **quiet)
    for mine, one, other in zip(together[0], alone[0], touched[0], strict=True):
        assert distance(mine, one) < 1e-9
        assert distance(mine, one) < 1e-12 + 100 * distance(other, one)


save = meta.Files.save


def distance(a: SIB, b: SIB) -> float:
    return max((x - y).abs().max().item() for x, y in zip(a.parameters(), b.parameters(), strict=True))


def test_the_models_of_a_stack_learn_something_and_something_else():
    before, models = grid(), grid()
    run(models)
    parameters = [torch.cat([p.flatten() for p in model.parameters()]) for stream in models for model in stream]
    first = [torch.cat([p.flatten() for p in model.parameters()]) for stream in before for model in stream]
    moves = torch.stack(parameters) - torch.stack(first)
    assert torch.pdist(moves).min() > 1e-4


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    whole, parts = grid((1, 0, 2)), grid((1, 0, 2))
    histories = run(whole, tmp_path / "whole")
    original, calls = meta._train_steps, 0

    def stop_in_the_third_part(*arguments):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(meta, "_train_steps", stop_in_the_third_part)
    with pytest.raises(KeyboardInterrupt):
        run(parts, tmp_path / "parts")
    monkeypatch.setattr(meta, "_train_steps", original)
    resumed = grid((1, 0, 2))
    assert without_speed(run(resumed, tmp_path / "parts")) == without_speed(histories)
    for s in range(2):
        for e in range(3):
            assert same_parameters(whole[s][e], resumed[s][e])
            for name in (meta.LAST, meta.BEST):
                a, b = (load_sib(tmp_path / folder / f"{s}-{e}" / name)[0] for folder in ("whole", "parts"))
                assert same_parameters(a, b)


def test_a_finished_run_is_loaded_and_not_trained_again(tmp_path, monkeypatch):
    trained, loaded = grid(), grid()
    histories = run(trained, tmp_path)
    monkeypatch.setattr(meta, "_train_steps", None)
    assert run(loaded, tmp_path) == histories
    assert all(same_parameters(a, b) for x, y in zip(trained, loaded, strict=True) for a, b in zip(x, y, strict=True))


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    run(grid(), tmp_path)
    with pytest.raises(ValueError, match="belongs to another run: its model is"):
        run(grid(etas=(0.1, 0.01, 0.001)), tmp_path)


def test_a_state_of_other_models_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(meta.Files, "save", lambda *arguments: save(*arguments[:-1], False))
    run(grid(), tmp_path)
    with pytest.raises(ValueError, match="its number of models is 6, but now 2 is asked for"):
        run(grid((2, 2), ETAS[:2], streams=1), tmp_path)


def test_the_files_of_a_model_are_those_of_training_it_alone(tmp_path):
    models, alone = grid((1, 0, 2)), grid((1, 0, 2))
    run(models, tmp_path / "together", steps=6)
    bank, _ = gaussian_bank()
    schedule = Schedule(steps=6, every=2, batch=4, lr=0.01)
    for s, sampler in enumerate(samplers()):
        for e, model in enumerate(alone[s]):
            options = {"validation": validation(), "report": lambda line: None}
            history = train(model, bank, sampler, schedule, folder=tmp_path / "alone", **options)
            for name in (meta.LAST, meta.BEST):
                mine, about = read_tensors(tmp_path / "together" / f"{s}-{e}" / name)
                theirs, expected = read_tensors(tmp_path / "alone" / name)
                assert about.keys() == expected.keys()
                assert all(about[key] == expected[key] for key in ("model", "tasks", "schedule", "data"))
                assert mine.keys() == theirs.keys()
                assert all(torch.allclose(mine[key], theirs[key], rtol=0, atol=1e-9) for key in mine)
            assert len(about["history"]) == len(expected["history"]) <= len(history)
            for name in (meta.LAST, meta.BEST):
                (tmp_path / "alone" / name).unlink()


def test_best_is_chosen_for_each_model_by_itself(tmp_path, monkeypatch):
    scores = {0: iter([0.5, 0.9, 0.7]), 1: iter([0.8, 0.2, 0.3])}

    def scripted(*_):
        return [Evaluation(torch.tensor([next(scores[e])])) for e in range(2)]

    monkeypatch.setattr(meta, "evaluate_each", scripted)
    run(grid((2, 2), ETAS[:2], streams=1), tmp_path)
    steps = [load_sib(tmp_path / f"0-{e}" / meta.BEST)[1]["history"][-1]["step"] for e in range(2)]
    assert steps == [4, 2]


@pytest.mark.parametrize("bad", [math.nan, 1e200])
def test_a_model_that_diverges_leaves_the_others_untouched(bad):
    lines = []
    models, clean = grid(), grid()
    with torch.no_grad():
        models[0][1].scale.fill_(bad)
    histories = run(models, report=lines.append)
    expected = run(clean)
    for s in range(2):
        for e in range(3):
            if (s, e) == (0, 1):
                assert not math.isfinite(histories[s][e][-1]["loss"])
            else:
                assert same_parameters(models[s][e], clean[s][e])
                assert without_speed([[histories[s][e]]]) == without_speed([[expected[s][e]]])
    assert "1 of 6 models diverged" in lines[-1]
    assert "nan" not in lines[-1]


@pytest.mark.parametrize("kind", [Stacked, OneByOne])
def test_evaluation_of_a_group_is_that_of_each_model(kind):
    models = grid((3, 0, 1))
    bank, tasks = validation(5)
    for batch in (7, 32):
        scores = evaluate_each(kind(models), bank, tasks, batch)
        for model, score in zip((model for stream in models for model in stream), scores, strict=True):
            assert torch.equal(score.accuracies, evaluate(model, bank, tasks).accuracies)


def test_progress_reaches_a_log_without_a_terminal(capsys):
    run(grid(), report=None)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(word in lines[0] for word in ("step 2/6", "loss", " to ", "accuracy", "validation", "steps/s"))


def test_samplers_that_do_not_fit_are_refused():
    bank, labels = gaussian_bank()
    models = grid()
    with pytest.raises(ValueError, match="2 streams of models need as many samplers, got 1"):
        train(models, bank, samplers()[:1])
    other = EpisodeSampler(labels, WAYS, 2, 4, seed=1)
    with pytest.raises(ValueError, match="samplers may differ in seed only"):
        train(models, bank, [samplers()[0], other])
    with pytest.raises(ValueError, match="draws from 160 rows"):
        train(models, bank[:-1], samplers())


def test_the_callers_models_are_trained_in_place_and_nothing_else():
    models = grid()
    others = copy.deepcopy(models)
    run(models)
    assert not same_parameters(models[0][0], others[0][0])
    assert all(p.grad is None for stream in models for model in stream for p in model.parameters())


@pytest.mark.parametrize(
    "options",
    [{"fidelity": "paper", "sigma": 0.1}, {"normalise": "running"}],
    ids=["noise and KL", "running statistics"],
)
def test_what_no_stack_has_is_trained_together_all_the_same(options):
    together, alone = grid((2, 0), ETAS[:2], **options), grid((2, 0), ETAS[:2], **options)
    histories = run(together)
    bank, _ = gaussian_bank()
    schedule = Schedule(steps=6, every=2, batch=4, lr=0.01)
    for s, sampler in enumerate(samplers()):
        for e, model in enumerate(alone[s]):
            history = train(model, bank, sampler, schedule, validation=validation(), report=lambda line: None)
            assert same_parameters(together[s][e], model)
            assert without_speed([[histories[s][e]]]) == without_speed([[history]])


def traced(function, **options):
    """What torch.compile traces, without the minute of making machine code of it."""
    return torch_compile(function, backend="eager", fullgraph=True, **options)


torch_compile = torch.compile


@pytest.mark.thorough
@pytest.mark.parametrize("options", [{}, {"transductive": False}, {"fidelity": "paper", "sigma": 0.1}])
def test_the_compiled_step_is_the_eager_one(options, monkeypatch, capsys):
    eager, compiled = (grid((1,), ETAS[:1], streams=1, **options) for _ in range(2))
    expected = run(eager)
    monkeypatch.setattr(torch, "compile", traced)
    torch.compiler.reset()
    histories = run(compiled, compile=True)
    torch.compiler.reset()
    assert "does not work" not in capsys.readouterr().err
    assert distance(eager[0][0], compiled[0][0]) < 1e-9
    assert histories[0][0][-1]["loss"] == pytest.approx(expected[0][0][-1]["loss"], abs=1e-9)


@pytest.mark.thorough
def test_more_kinds_of_training_than_torch_keeps_are_all_compiled(monkeypatch, capsys):
    monkeypatch.setattr(torch, "compile", traced)
    torch.compiler.reset()
    with torch._dynamo.config.patch(recompile_limit=1):
        for reduction in ("sum", "mean"):
            run(grid((0,), ETAS[:1], streams=1, reduction=reduction, transductive=reduction == "sum"), compile=True)
    torch.compiler.reset()
    assert "does not work" not in capsys.readouterr().err


class Killed(BaseException):
    pass


@pytest.mark.thorough
@pytest.mark.parametrize("alone", [True, False])
def test_a_run_killed_before_or_after_any_write_ends_in_the_same_bits(alone, tmp_path, monkeypatch):
    write = files.write_atomically

    def attempt(folder, writes=None, before=True):
        """Train, and die at write number `writes`."""
        done = 0

        def counted(*arguments):
            nonlocal done
            if before and done == writes:
                raise Killed
            write(*arguments)
            done += 1
            if not before and done - 1 == writes:
                raise Killed

        models = grid((1, 0), ETAS[:2], streams=1)
        monkeypatch.setattr(files, "write_atomically", counted)
        if alone:
            schedule, bank = Schedule(steps=5, every=2, batch=4, lr=0.01), gaussian_bank()[0]
            options = {"validation": validation(), "folder": folder, "report": lambda line: None}
            train(models[0][0], bank, samplers()[0], schedule, **options)
        else:
            run(models, folder, steps=5)
        return done

    def content(folder):
        return {
            str(path.relative_to(folder)): {name: tensor.tolist() for name, tensor in read_tensors(path)[0].items()}
            for path in folder.rglob("*.safetensors")
        }

    writes = attempt(tmp_path / "whole")
    whole = content(tmp_path / "whole")
    assert len(whole) == (2 if alone else 4), "best and last of each model, and nothing else"
    for number in range(writes):
        for before in (True, False):
            folder = tmp_path / f"{number}-{before}"
            with pytest.raises(Killed):
                attempt(folder, number, before)
            attempt(folder)
            assert content(folder) == whole


@pytest.mark.parametrize("options", [{}, {"transductive": False}, {"xi": "set"}, {"fidelity": "paper"}])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_step_and_an_answer_need_no_other_device_than_that_of_the_models(options, compiled):
    """Meta tensors have a device and a shape and no numbers: a tensor made elsewhere would not go with them."""
    models = [[SIB(WAYS, DIM, 2, 0.01, **options).to("meta")]]
    group = grouped(models, compiled)
    bank = torch.zeros(20, DIM, device="meta")
    support, query = (torch.zeros(1, 4, size, dtype=torch.long, device="meta") for size in (WAYS, 12))
    noise = [torch.zeros(3, 4, WAYS, DIM, device="meta")] if options.get("fidelity") else [None]
    tasks = support, support, query, query
    result, gradients = meta.gradients_of(group, group.trained(), bank, tasks, noise)
    meta.Optimiser(group, Schedule(), 0, []).step(0, gradients)
    assert (result.shape, result.device.type) == ((2, 1), "meta")
    answer = group.answer(bank[:WAYS].expand(4, -1, -1), support[0], bank[:12].expand(4, -1, -1))
    assert (answer.shape, answer.device.type) == ((1, 4, 12, WAYS), "meta")


def test_models_of_other_tasks_are_refused():
    with pytest.raises(ValueError, match="4 ways and 10 dimensions do not go with 3 and 10"):
        grouped([[SIB(3, 10), SIB(4, 10)]], compiled=False)
    with pytest.raises(ValueError, match=r"equally many models, at least one, got \[1, 2\]"):
        grouped([[SIB(3, 10)], [SIB(3, 10), SIB(3, 10)]], compiled=False)
