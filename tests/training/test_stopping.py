"""A training run that is asked to stop saves its step, says how to continue, and continues exactly."""

import os
import signal

import pytest
import torch

from latentalign.errors import Interrupted
from latentalign.training import checkpoint, loop
from latentalign.training.loop import Trainer
from latentalign.training.run import Run


def strike_at(monkeypatch, step, *numbers, while_saving=()):
    """Send signals to this process during an update, and more of them while the checkpoint is written."""
    update, save = Trainer.update, loop.save_trainer

    def struck(self, group):
        if self.position.step + 1 == step:
            for number in numbers:
                os.kill(os.getpid(), number)
        return update(self, group)

    def save_under_fire(trainer):
        for number in while_saving:
            os.kill(os.getpid(), number)
        save(trainer)

    monkeypatch.setattr(Trainer, "update", struck)
    monkeypatch.setattr(loop, "save_trainer", save_under_fire)


def weights(folder):
    return checkpoint.load(Run(folder).checkpoint).tensors["module"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_the_step_and_resuming_is_exact(number, code, digits, tmp_path, monkeypatch, capfd):
    digits.train(tmp_path / "whole")
    with monkeypatch.context() as patch:
        strike_at(patch, 3, number, number, while_saving=[signal.SIGINT, signal.SIGTERM])
        with pytest.raises(Interrupted) as caught:
            digits.train(tmp_path / "cut")
    assert caught.value.exit_code == code, "the first signal decides"
    assert caught.value.saved == "saved after step 3 of the training"
    assert capfd.readouterr().err.count("saving after the current step") == 1
    assert checkpoint.load(Run(tmp_path / "cut").checkpoint).documents["position"]["step"] == 3
    digits.train(tmp_path / "cut", resume=True)
    whole, cut = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_handlers_are_restored_after_an_interruption(digits, tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    strike_at(monkeypatch, 1, signal.SIGINT)
    with pytest.raises(Interrupted):
        digits.train(tmp_path / "run")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_stop_during_the_warm_start_names_it(digits, tmp_path, monkeypatch):
    strike_at(monkeypatch, 2, signal.SIGINT)
    options = ("training.warm_start_objective=soft", "training.warm_start_epochs=1")
    with pytest.raises(Interrupted) as caught:
        digits.train(tmp_path / "run", *options)
    assert caught.value.saved == "saved after step 2 of the warm start"
    monkeypatch.undo()
    result = digits.train(tmp_path / "run", *options, resume=True)
    assert [(p["phase"], p["steps"]) for p in result["phases"]] == [("warm start", 4), ("training", 8)]


def test_a_signal_to_one_process_stops_all(digits, tmp_path):
    """The processes agree on the signal through the sums that they exchange, even if it arrives in between."""
    trainer = object.__new__(Trainer)
    trainer.world = type("World", (), {"size": 2, "leader": False})()
    trainer.config = digits.recipe().training
    trainer.position = loop.Position()
    trainer.device = torch.device("cpu")
    trainer.signal_received = 0

    def add(values, device, alike):
        trainer.request_stop(signal.SIGINT)  # arrives after the sums of this step were sent
        assert len(values) == 7
        return [float(x) for x in [*values, *alike]]

    trainer.world.add = add
    zero = torch.zeros(())
    sums = loop.Sums(zero, zero, {}, 1, 1)
    trainer.read(sums, zero)
    assert trainer.stop_signal == 0
    trainer.read(sums, zero)
    assert trainer.stop_signal == signal.SIGINT
    trainer.world.add = lambda values, device, alike: [*values[:-3], 1, values[-2], 0, *alike]
    trainer.read(sums, zero)
    assert trainer.stop_signal == signal.SIGTERM, "SIGTERM of another process wins over Ctrl-C"
