"""How far a run is, and its way into and out of checkpoints."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainer import checkpoints
from trainer.arguments import Options, image_size
from trainer.errors import InvalidArguments, InvalidData
from trainer.inputs import Inputs
from trainer.progress import warn
from trainer.schedule import Position


@dataclass
class Milestones:
    """`step` counts updates, `position` the examples of the epoch, `sums` its [loss, correct, examples] so far."""

    step: int = 0
    position: Position = field(default_factory=Position)
    sums: Any = field(default_factory=lambda: np.zeros(3))
    history: list[dict[str, float]] = field(default_factory=list)
    confusion: Any = None
    best: checkpoints.Best | None = None
    undecodable: Sequence[int] = ()
    """Examples (of the whole dataset) that only decoding showed to be broken; they counted for nothing."""

    def epoch_metrics(self) -> dict[str, float]:
        loss, correct, examples = self.sums
        if not examples:
            raise InvalidData("none of the training images can be decoded")
        return {"loss": float(loss / examples), "accuracy": float(correct / examples)}

    def end_epoch(self, metrics: Mapping[str, float]) -> bool:
        """True when no epoch before had as low a val_loss."""
        self.history.append(dict(metrics))
        self.sums = np.zeros(3)
        loss = metrics.get("val_loss", math.inf)
        if loss < (self.best.loss if self.best else math.inf):
            self.best = checkpoints.Best(self.position.epoch, self.step, loss)
        return self.best is not None and self.best.step == self.step

    def stops_early(self, patience: int) -> bool:
        """True when the last `patience` epochs brought no better val_loss than those before; never for 0."""
        return bool(patience) and self.best is not None and self.position.epoch - self.best.epoch >= patience

    def is_done(self, options: Options) -> bool:
        """True when no epoch follows."""
        return self.position.epoch >= options.epochs or self.stops_early(options.early_stopping)

    def is_past_best(self, patience: int) -> bool:
        """True when early stopping wants weights that are no longer the model's."""
        return bool(patience) and self.best is not None and self.best.step != self.step

    def chosen_epoch(self, patience: int) -> int:
        """The epoch (1-based) whose weights are exported: with early stopping the best, otherwise the last."""
        return self.best.epoch if patience and self.best else len(self.history)

    def to_state(self, values: Sequence[Any], options: Options, inputs: Inputs) -> checkpoints.State:
        mark = fingerprint(options, inputs)
        sums, history = self.sums.tolist(), tuple(self.history)
        return checkpoints.State(self.step, self.position, values, sums, history, mark, self.best)


def close_epoch(
    reached: Milestones, metrics: Mapping[str, float], options: Options, writer: checkpoints.Writer
) -> bool:
    """Ends an epoch. True when its checkpoint must not be skipped: it is the last, or what would be exported now."""
    best = reached.end_epoch(metrics) and bool(options.early_stopping)
    if best:
        writer.kept_step = reached.step
    return best or reached.is_done(options)


def load_best(options: Options, reached: Milestones) -> checkpoints.State | None:
    """The checkpoint of the best epoch, which is then what is exported; None, and said why, where it is gone."""
    assert reached.best is not None
    state = checkpoints.load_step(options.checkpoint_dir, reached.best.step, warn)
    if state is None:
        warn(f"exporting the last epoch: the best one, {reached.best.epoch}, is no longer there")
    return state


def load_checkpoint(options: Options, inputs: Inputs) -> checkpoints.State | None:
    """The newest readable checkpoint; InvalidArguments when it is of another run."""
    state = checkpoints.load_newest(options.checkpoint_dir, warn)
    if state is not None:
        expected = fingerprint(options, inputs)
        differing = [
            f"{name} {state.fingerprint.get(name)} there, {value} here"
            for name, value in expected.items()
            if state.fingerprint.get(name) != value
        ]
        if differing:
            words = "; ".join(differing)
            raise InvalidArguments(f"the checkpoints in {options.checkpoint_dir} are of another run: {words}")
    return state


def from_state(state: checkpoints.State) -> Milestones:
    history = [dict(entry) for entry in state.history]
    return Milestones(state.step, state.position, np.array(state.sums), history, best=state.best)


def fingerprint(options: Options, inputs: Inputs) -> dict[str, Any]:
    """What must be the same for a checkpoint to make sense; batch size and number of replicas may differ."""
    return {
        "model": options.model,
        "head": options.head,
        "image_size": image_size(options),
        "classes": len(inputs.dataset.classes),
        "training_images": len(inputs.training),
        "seed": options.seed,
        "dataset": inputs.dataset.digest,
    }
