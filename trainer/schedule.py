"""Which examples each replica sees at each step. Pure: the whole order follows from (seed, epoch).

An epoch is a permutation of the training examples. Global batch k of it is the next `global_batch` positions,
and replica r takes the r-th part of these. So the order of one seed does not depend on the number of replicas,
every example is seen once an epoch, and a run can go on at any example with any number of replicas.
"""

from dataclasses import dataclass, field

import numpy as np

from trainer.datasets import Indices


@dataclass(frozen=True)
class Position:
    """How far training has come: `offset` examples of `epoch` (0-based) are done."""

    epoch: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Schedule:
    """`examples` training examples, in global batches of `global_batch`, from `start` on."""

    examples: int
    global_batch: int
    seed: int
    start: Position = field(default_factory=Position)

    def steps(self, epoch: int) -> int:
        """Steps that epoch still takes from `start`; the last batch may be partial."""
        offset = self.start.offset if epoch == self.start.epoch else 0
        return -(-(self.examples - offset) // self.global_batch)

    def locate(self, step: int) -> Position:
        """Where the batch of `step` (0-based, counted from `start`) begins."""
        first = self.steps(self.start.epoch)
        if step < first:
            return Position(self.start.epoch, self.start.offset + step * self.global_batch)
        epochs, rest = divmod(step - first, self.steps(self.start.epoch + 1))
        return Position(self.start.epoch + 1 + epochs, rest * self.global_batch)

    def after(self, step: int) -> Position:
        """Where training goes on once the batch of `step` is done."""
        return self.locate(step + 1)

    def batch(self, step: int) -> Indices:
        """Positions into the training set of the whole global batch of `step`: 1 to `global_batch` of them."""
        position = self.locate(step)
        order = permutation(self.examples, self.seed, position.epoch)
        return order[position.offset : position.offset + self.global_batch]


def permutation(examples: int, seed: int, epoch: int) -> Indices:
    return np.random.default_rng((seed, epoch)).permutation(examples)


def share(batch: Indices, replica: int, per_replica: int) -> tuple[Indices, int]:
    """(indices, count) of one replica's part: always `per_replica` indices, of which the first `count` are its own.

    A partial batch is filled up with examples of the same batch that count for nothing (their weight is 0): every
    replica then has the same shape, none is empty, and batch statistics see real images only.
    """
    own = batch[replica * per_replica : (replica + 1) * per_replica]
    return np.concatenate([own, np.resize(batch, per_replica - len(own))]), len(own)
