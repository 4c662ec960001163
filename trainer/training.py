"""One run under a synchronous strategy, from the data to the exported model. Reads top to bottom: `train`."""

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer import checkpoints, loop, outcome
from trainer.arguments import Options
from trainer.assembly import Setup, assemble, open_strategy
from trainer.cluster import Cluster
from trainer.epochs import revalidate, train_epochs
from trainer.failures import image_errors_unwrapped, peers_watched
from trainer.milestones import Milestones, from_state, load_best, load_checkpoint
from trainer.progress import say
from trainer.schedule import Position
from trainer.termination import Termination


def train(options: Options, cluster: Cluster, environ: Mapping[str, str]) -> None:
    """Trains, and leaves the model in `options.output`. Raises TrainerError."""
    with tempfile.TemporaryDirectory(prefix="kickoff-data-") as directory, peers_watched(cluster):
        strategy = open_strategy(options, cluster, environ)
        # After the strategy: TensorFlow's coordination service installs a handler of its own, which only takes note.
        termination = Termination.install()
        setup = assemble(options, cluster, environ, strategy, Path(directory), termination)
        with contextlib.closing(setup.cache), image_errors_unwrapped(setup.cache):
            progress = _resume(setup)
            train_epochs(setup, progress)
            _take_best(setup, progress)
            if progress.confusion is None:
                revalidate(setup, progress)
            progress.undecodable = _undecodable(setup)
            _finish(setup, progress)


def _resume(setup: Setup) -> Milestones:
    """Where the newest checkpoint left off, on every replica; the start where there is none. Collective."""
    state = load_checkpoint(setup.options, setup.inputs) if setup.cluster.is_primary else None
    reached = Milestones() if state is None else from_state(state)
    best = reached.best or checkpoints.Best(epoch=0, step=-1, loss=0.0)
    (numbers,) = _shared(
        setup,
        [
            np.array(
                [
                    *(state is not None, reached.step, reached.position.epoch, reached.position.offset),
                    *(best.epoch, best.step, best.loss),
                    *reached.sums,
                ]
            )
        ],
    )
    if not numbers[0]:
        return reached
    variables = loop.variables_of(setup.model, setup.optimizer)
    loop.assign(variables, _shared(setup, loop.values_of(variables) if state is None else state.values))
    step, epoch, offset, best_epoch, best_step = (int(number) for number in numbers[1:6])
    say(f"resuming at step {step}: epoch {epoch + 1}, {offset} images into it")
    setup.writer.last_step, setup.writer.kept_step = step, best_step
    # The others know no history, and must stop early where the primary does.
    known = checkpoints.Best(best_epoch, best_step, float(numbers[6])) if best_epoch else None
    return Milestones(step, Position(epoch, offset), numbers[7:], reached.history, best=known)


def _shared(setup: Setup, values: Sequence[npt.NDArray[Any]]) -> Sequence[npt.NDArray[Any]]:
    """The primary's values, on every replica. Collective."""
    return loop.broadcast(setup.strategy, values) if setup.replicas > 1 else values


def _take_best(setup: Setup, progress: Milestones) -> None:
    """With early stopping: the weights of the epoch with the lowest val_loss, on every replica. Collective."""
    if not progress.is_past_best(setup.options.early_stopping):
        return
    state = load_best(setup.options, progress) if setup.cluster.is_primary else None
    (found,) = _shared(setup, [np.array([state is not None], np.float32)])
    if not found[0]:
        progress.best = None
        return
    variables = loop.model_variables(setup.model)
    values = loop.values_of(variables) if state is None else state.values[: len(variables)]
    loop.assign(variables, _shared(setup, values))
    progress.confusion = None


def _undecodable(setup: Setup) -> Sequence[int]:
    """The broken images that any replica met. Collective."""
    if not setup.options.skip_bad_images:
        return ()
    met = np.zeros(len(setup.inputs.dataset), np.float32)
    met[list(setup.cache.bad)] = 1
    found = np.flatnonzero(loop.total(setup.strategy, met)).tolist()
    if found:
        say(f"{len(found)} images could not be decoded and counted for nothing; metrics.json names them")
    return found


def _finish(setup: Setup, progress: Milestones) -> None:
    """The primary exports; the others wait for it, so that no replica ends well unless there is a model."""
    values = loop.values_of(loop.model_variables(setup.model))
    say(f"weights {loop.digest(values)} after step {progress.step}")
    if setup.cluster.is_primary:
        setup.writer.flush()
        outcome.write(setup.options, setup.inputs, progress, values, setup.environ)
        say(f"model written to {setup.options.output}")
        setup.events.finished(outcome.chosen_metrics(setup.options, progress), setup.options.output)
    if len(setup.cluster.synchronous) > 1:
        loop.broadcast(setup.strategy, [np.ones(1, np.float32)])
