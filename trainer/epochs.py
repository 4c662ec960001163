"""The epochs of a synchronous run: every step, what has to be done between steps, and the validation after each."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from trainer import loop
from trainer.arguments import image_size
from trainer.assembly import Setup
from trainer.errors import Diverged, InvalidData, Terminated
from trainer.milestones import Milestones, close_epoch
from trainer.pipeline import training_batches, validation_batches, validation_steps
from trainer.progress import format_epoch, say
from trainer.schedule import Schedule
from trainer.update import build_update


def train_epochs(setup: Setup, progress: Milestones) -> None:
    options = setup.options
    start = progress.position
    schedule = Schedule(len(setup.inputs.training), setup.global_batch, options.seed, start)
    total = sum(schedule.steps(epoch) for epoch in range(start.epoch, options.epochs))
    if total <= 0 or progress.stops_early(options.early_stopping):
        say(f"nothing to train: {options.checkpoint_dir} holds {start.epoch} of {options.epochs} epochs of this run")
        return
    batches = training_batches(
        setup.strategy, setup.cache, setup.inputs.training, schedule, options.batch_size, total - 1
    )
    held_out = _held_out(setup)
    steps, first = _compile(setup, start.epoch), progress.step
    setup.summaries.graph(setup.model, image_size(options))
    for epoch in range(start.epoch, options.epochs):
        if epoch == options.freeze_epochs and epoch > start.epoch:
            steps = _compile(setup, epoch)
        began, seen = time.perf_counter(), progress.sums[2]
        for _ in range(schedule.steps(epoch)):
            _train_step(setup, progress, schedule, progress.step - first, steps, batches)
        rate = (progress.sums[2] - seen) / (time.perf_counter() - began)
        _end_epoch(setup, progress, steps, held_out, epoch, rate)
        if progress.stops_early(options.early_stopping):
            say(f"stopping early: no better val_loss for {options.early_stopping} epochs")
            return


def _held_out(setup: Setup) -> Iterator[Any]:
    """Begins when first asked: until then decoding it would only take the processors from the first epoch."""
    yield from validation_batches(
        setup.strategy, setup.cache, setup.inputs.validation, setup.options.batch_size, setup.replicas
    )


def _compile(setup: Setup, epoch: int) -> loop.Steps:
    return loop.Steps(setup.strategy, build_update(setup.options, setup.inputs, setup.model, setup.optimizer, epoch))


def _train_step(
    setup: Setup, progress: Milestones, schedule: Schedule, number: int, steps: loop.Steps, batches: Iterator[Any]
) -> None:
    """One update, and what has to be done at this very step: stop, save, or give up."""
    if setup.options.profile:
        setup.summaries.profile(number)
    options, stop = setup.options, setup.termination.requested
    due = setup.writer.is_due(progress.step + 1, options.checkpoint_steps, options.checkpoint_minutes)
    save = setup.cluster.is_primary and due
    loss, correct, examples, stops, saves = steps.train(next(batches), tf.constant([stop, save], tf.float32))
    if not np.isfinite(loss):
        files = [setup.inputs.dataset.names[setup.inputs.training[index]] for index in schedule.batch(number)]
        raise Diverged(f"the loss is {loss} at step {progress.step + 1}; its batch: {', '.join(files)}")
    progress.sums = progress.sums + np.array([loss, correct, examples])
    progress.step += 1
    progress.position = schedule.after(number)
    if stops or saves:  # summed over replicas: all come here at the same step
        loop.agree(setup.strategy, setup.model)
        save_checkpoint(setup, progress, wait=bool(stops))
    if stops:
        raise Terminated(f"SIGTERM: stopped after step {progress.step}; the next start resumes there")


def save_checkpoint(setup: Setup, progress: Milestones, *, wait: bool = False) -> None:
    if not setup.cluster.is_primary or (setup.writer.busy and not wait):
        return
    values = loop.values_of(loop.variables_of(setup.model, setup.optimizer))
    setup.writer.write(progress.to_state(values, setup.options, setup.inputs), wait=wait)


def _end_epoch(
    setup: Setup, progress: Milestones, steps: loop.Steps, held_out: Iterator[Any], epoch: int, rate: float
) -> None:
    metrics = progress.epoch_metrics()
    loop.agree(setup.strategy, setup.model)
    _check_weights(setup, epoch)
    metrics |= validate(setup, progress, steps, held_out)
    needed = close_epoch(progress, metrics, setup.options, setup.writer)
    save_checkpoint(setup, progress, wait=needed)
    if setup.cluster.is_primary:
        say(format_epoch(epoch + 1, setup.options.epochs, metrics, rate))
        setup.events.epoch(epoch + 1, setup.options.epochs, metrics, rate)
        setup.summaries.scalars(epoch + 1, {**metrics, "images_per_second": rate})


def _check_weights(setup: Setup, epoch: int) -> None:
    """ReLU on a CPU turns NaN into 0, so a weight can be lost without the loss ever showing it."""
    for variable in setup.model.variables:
        value = np.asarray(variable)
        if np.issubdtype(value.dtype, np.floating) and not np.all(np.isfinite(value)):
            raise Diverged(f"{variable.path} holds numbers that are not finite after epoch {epoch + 1}")


def revalidate(setup: Setup, progress: Milestones) -> None:
    """Measures the model as it is now, where no epoch of this process has, or other weights were taken. Collective."""
    validate(setup, progress, _compile(setup, setup.options.epochs), _held_out(setup))


def validate(setup: Setup, progress: Milestones, steps: loop.Steps, held_out: Iterator[Any]) -> dict[str, float]:
    """Loss and accuracy over the validation examples, each counted once; keeps the confusion matrix."""
    if not len(setup.inputs.validation):
        return {}
    total: Any = 0
    for _ in range(validation_steps(setup.inputs.validation, setup.global_batch)):
        total = total + steps.evaluate(next(held_out))
    loss, examples, confusion = total[0], total[1], total[2:]
    if not examples:
        raise InvalidData("none of the held-out images can be decoded")
    classes = len(setup.inputs.dataset.classes)
    progress.confusion = confusion.reshape(classes, classes)
    return {"val_loss": float(loss / examples), "val_accuracy": float(np.trace(progress.confusion) / examples)}
