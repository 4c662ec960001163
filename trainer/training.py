"""One run under a synchronous strategy, from the data to the exported model. Reads top to bottom: `train`."""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainer import checkpoints, loop, outcome
from trainer.arguments import Options, image_size
from trainer.cluster import Cluster, select_strategy
from trainer.errors import Diverged, Terminated
from trainer.failures import image_errors_unwrapped, peers_watched
from trainer.images import ImageCache, class_weights
from trainer.inputs import Inputs, open_inputs
from trainer.milestones import Milestones, from_state, load_checkpoint
from trainer.models import build_model, head_variables
from trainer.pipeline import training_batches, validation_batches, validation_steps
from trainer.progress import Events, format_epoch, say, warn
from trainer.rendezvous import wait_for_peers
from trainer.schedule import Position, Schedule
from trainer.strategies import create_strategy, list_devices
from trainer.summaries import Summaries
from trainer.termination import Termination


@dataclass(frozen=True)
class Setup:
    """Everything that stays the same for the whole run."""

    options: Options
    cluster: Cluster
    strategy: Any
    inputs: Inputs
    cache: ImageCache
    model: Any
    optimizer: Any
    termination: Termination
    events: Events
    writer: checkpoints.Writer
    summaries: Summaries
    environ: Mapping[str, str]

    @property
    def replicas(self) -> int:
        return int(self.strategy.num_replicas_in_sync)

    @property
    def global_batch(self) -> int:
        return self.options.batch_size * self.replicas


def train(options: Options, cluster: Cluster, environ: Mapping[str, str]) -> None:
    """Trains, and leaves the model in `options.output`. Raises TrainerError."""
    with tempfile.TemporaryDirectory(prefix="kickoff-data-") as directory, peers_watched(cluster):
        strategy = _strategy(options, cluster, environ)
        # After the strategy: TensorFlow's coordination service installs a handler of its own, which only takes note.
        termination = Termination.install()
        setup = _set_up(options, cluster, environ, strategy, Path(directory), termination)
        with contextlib.closing(setup.cache), image_errors_unwrapped(setup.cache):
            progress = _resume(setup)
            _train_epochs(setup, progress)
            _finish(setup, progress)


def _strategy(options: Options, cluster: Cluster, environ: Mapping[str, str]) -> Any:
    devices = list_devices(int(environ.get("KICKOFF_CPU_DEVICES") or 0))
    name = select_strategy(options.strategy, cluster, len(devices))
    left = wait_for_peers(cluster, options.peer_timeout, len(devices)) if name == "multi-worker" else 0
    strategy = create_strategy(name, cluster, devices, left)
    say(f"strategy {name}: {cluster}, {strategy.num_replicas_in_sync} replicas, {len(devices) or 'no'} accelerators")
    return strategy


def _set_up(
    options: Options,
    cluster: Cluster,
    environ: Mapping[str, str],
    strategy: Any,
    directory: Path,
    termination: Termination,
) -> Setup:
    inputs = open_inputs(options, directory)
    keras = tf.keras
    keras.utils.set_random_seed(options.seed)
    if options.precision != "float32":
        keras.mixed_precision.set_global_policy(f"mixed_{options.precision}")
    with strategy.scope():
        model = build_model(keras, options, len(inputs.dataset.classes))
        scale = strategy.num_replicas_in_sync if options.scale_learning_rate else 1
        optimizer = keras.optimizers.Adam(options.learning_rate * scale)
        optimizer.build(model.trainable_variables)
    cache = ImageCache(inputs.dataset, image_size(options), skip_bad=options.skip_bad_images)
    return Setup(
        options,
        cluster,
        strategy,
        inputs,
        cache,
        model,
        optimizer,
        termination,
        Events(environ if cluster.is_primary else {}),
        checkpoints.Writer(options.checkpoint_dir, options.keep_checkpoints, warn),
        Summaries(options.log_dir if cluster.is_primary else "", directory),
        environ,
    )


def _resume(setup: Setup) -> Milestones:
    """Where the newest checkpoint left off, on every replica; the start where there is none. Collective."""
    state = load_checkpoint(setup.options, setup.inputs) if setup.cluster.is_primary else None
    reached = Milestones() if state is None else from_state(state)
    several = setup.replicas > 1
    numbers = np.array(
        [state is not None, reached.step, reached.position.epoch, reached.position.offset, *reached.sums]
    )
    if several:
        (numbers,) = loop.broadcast(setup.strategy, [numbers.astype(np.float64)])
    if not numbers[0]:
        return reached
    variables = loop.variables_of(setup.model, setup.optimizer)
    values = loop.values_of(variables) if state is None else state.values
    loop.assign(variables, loop.broadcast(setup.strategy, values) if several else values)
    position = Position(int(numbers[2]), int(numbers[3]))
    say(f"resuming at step {int(numbers[1])}: epoch {position.epoch + 1}, {position.offset} images into it")
    setup.writer.last_step = int(numbers[1])
    return Milestones(int(numbers[1]), position, numbers[4:], reached.history)


def _train_epochs(setup: Setup, progress: Milestones) -> None:
    options = setup.options
    start = progress.position
    schedule = Schedule(len(setup.inputs.training), setup.global_batch, options.seed, start)
    total = sum(schedule.steps(epoch) for epoch in range(start.epoch, options.epochs))
    if total <= 0:
        _validate(setup, progress, _compile(setup, start.epoch), _held_out(setup))
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
        if stops_early(progress.history, options.early_stopping):
            say(f"stopping early: no better val_loss for {options.early_stopping} epochs")
            return


def _held_out(setup: Setup) -> Iterator[Any]:
    """Begins when first asked: until then decoding it would only take the processors from the first epoch."""
    yield from validation_batches(
        setup.strategy, setup.cache, setup.inputs.validation, setup.options.batch_size, setup.replicas
    )


def _compile(setup: Setup, epoch: int) -> loop.Steps:
    options = setup.options
    return loop.Steps(
        tf.keras,
        setup.strategy,
        setup.model,
        setup.optimizer,
        trainable=head_variables(setup.model) if epoch < options.freeze_epochs else None,
        class_weights=class_weights(setup.inputs.dataset.labels[setup.inputs.training], setup.inputs.dataset.classes)
        if options.class_weights
        else None,
        augment=options.augment,
    )


def _train_step(
    setup: Setup, progress: Milestones, schedule: Schedule, number: int, steps: loop.Steps, batches: Iterator[Any]
) -> None:
    """One update, and what has to be done at this very step: stop, save, or give up."""
    if setup.options.profile:
        setup.summaries.profile(number)
    stop, save = setup.termination.requested, setup.cluster.is_primary and _is_due(setup, progress.step + 1)
    loss, correct, examples, stops, saves = steps.train(next(batches), tf.constant([stop, save], tf.float32))
    if not np.isfinite(loss):
        files = [setup.inputs.dataset.names[setup.inputs.training[index]] for index in schedule.batch(number)]
        raise Diverged(f"the loss is {loss} at step {progress.step + 1}; its batch: {', '.join(files)}")
    progress.sums = progress.sums + np.array([loss, correct, examples])
    progress.step += 1
    progress.position = schedule.after(number)
    if stops or saves:  # summed over replicas: all come here at the same step
        loop.agree(setup.strategy, setup.model)
        _save(setup, progress, wait=bool(stops))
    if stops:
        raise Terminated(f"SIGTERM: stopped after step {progress.step}; the next start resumes there")


def _is_due(setup: Setup, step: int) -> bool:
    """A write that is still under way puts the next one off, it does not cancel it."""
    options, writer = setup.options, setup.writer
    by_step = options.checkpoint_steps and step - writer.last_step >= options.checkpoint_steps
    by_time = writer.seconds_since_last() > options.checkpoint_minutes * 60
    return bool(by_step or by_time) and not writer.busy


def _save(setup: Setup, progress: Milestones, *, wait: bool = False) -> None:
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
    metrics |= _validate(setup, progress, steps, held_out)
    progress.end_epoch(metrics)
    _save(setup, progress, wait=epoch + 1 == setup.options.epochs)
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


def _validate(setup: Setup, progress: Milestones, steps: loop.Steps, held_out: Iterator[Any]) -> dict[str, float]:
    """Loss and accuracy over the validation examples, each counted once; keeps the confusion matrix."""
    if not len(setup.inputs.validation):
        return {}
    total: Any = 0
    for _ in range(validation_steps(setup.inputs.validation, setup.global_batch)):
        total = total + steps.evaluate(next(held_out))
    loss, examples, confusion = total[0], total[1], total[2:]
    classes = len(setup.inputs.dataset.classes)
    progress.confusion = confusion.reshape(classes, classes)
    return {"val_loss": float(loss / examples), "val_accuracy": float(np.trace(progress.confusion) / examples)}


def stops_early(history: Sequence[Mapping[str, float]], patience: int) -> bool:
    """True when the last `patience` epochs brought no better val_loss than those before."""
    losses = [entry["val_loss"] for entry in history if "val_loss" in entry]
    return bool(patience) and len(losses) > patience and min(losses[-patience:]) >= min(losses[:-patience])


def _finish(setup: Setup, progress: Milestones) -> None:
    """The primary exports; the others wait for it, so that no replica ends well unless there is a model."""
    values = loop.values_of(loop.model_variables(setup.model))
    say(f"weights {loop.digest(values)} after step {progress.step}")
    if setup.cluster.is_primary:
        setup.writer.flush()
        outcome.write(setup.options, setup.inputs, progress, values, setup.environ)
        say(f"model written to {setup.options.output}")
        metrics = progress.history[-1] if progress.history else {}
        setup.events.finished(metrics, setup.options.output)
    if len(setup.cluster.synchronous) > 1:
        loop.broadcast(setup.strategy, [np.ones(1, np.float32)])
