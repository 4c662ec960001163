"""How far a run is, and its way into and out of checkpoints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainer import checkpoints
from trainer.arguments import Options, image_size
from trainer.errors import InvalidArguments
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

    def epoch_metrics(self) -> dict[str, float]:
        loss, correct, examples = self.sums
        return {"loss": float(loss / examples), "accuracy": float(correct / examples)}

    def end_epoch(self, metrics: Mapping[str, float]) -> None:
        self.history.append(dict(metrics))
        self.sums = np.zeros(3)

    def to_state(self, values: Sequence[Any], options: Options, inputs: Inputs) -> checkpoints.State:
        mark = fingerprint(options, inputs)
        return checkpoints.State(self.step, self.position, values, self.sums.tolist(), tuple(self.history), mark)


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
    return Milestones(state.step, state.position, np.array(state.sums), [dict(entry) for entry in state.history])


def fingerprint(options: Options, inputs: Inputs) -> dict[str, Any]:
    """What must be the same for a checkpoint to make sense; batch size and number of replicas may differ."""
    return {
        "model": options.model,
        "head": options.head,
        "image_size": image_size(options),
        "classes": len(inputs.dataset.classes),
        "training_images": len(inputs.training),
        "seed": options.seed,
    }
