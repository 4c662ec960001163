"""One run under a synchronous strategy, from the data to the exported model. Reads top to bottom: `train`."""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainer import checkpoints, loop, outcome
from trainer.arguments import Options, image_size
from trainer.cluster import Cluster
from trainer.datasets import Dataset, Indices, check, find_bad_images, split
from trainer.errors import Diverged, InvalidArguments, InvalidData, PeerLost, Terminated
from trainer.images import ImageCache, class_weights
from trainer.models import build_model, head_variables
from trainer.pipeline import training_batches, validation_batches, validation_steps
from trainer.progress import Events, format_epoch, say, warn
from trainer.rendezvous import wait_for_peers
from trainer.schedule import Position, Schedule
from trainer.sources import open_dataset
from trainer.strategies import check_devices, create_strategy, list_devices, select_strategy
from trainer.termination import Termination


@dataclass(frozen=True)
class Setup:
    """Everything that stays the same for the whole run."""

    options: Options
    cluster: Cluster
    strategy: Any
    dataset: Dataset
    training: Indices
    validation: Indices
    cache: ImageCache
    model: Any
    optimizer: Any
    termination: Termination
    events: Events
    writer: checkpoints.Writer

    @property
    def replicas(self) -> int:
        return int(self.strategy.num_replicas_in_sync)

    @property
    def global_batch(self) -> int:
        return self.options.batch_size * self.replicas


@dataclass
class Progress:
    """How far the run is: `step` counts updates, `position` the examples of the epoch, `sums` its figures so far."""

    step: int = 0
    position: Position = field(default_factory=Position)
    sums: Any = field(default_factory=lambda: np.zeros(3))
    history: list[dict[str, float]] = field(default_factory=list)
    confusion: Any = None


def train(options: Options, cluster: Cluster, environ: Mapping[str, str]) -> None:
    """Trains, and leaves the model in `options.output`. Raises TrainerError."""
    with tempfile.TemporaryDirectory(prefix="kickoff-data-") as directory, _peers_watched(cluster):
        strategy = _strategy(options, cluster, environ)
        # After the strategy: TensorFlow's coordination service installs a handler of its own, which only takes note.
        termination = Termination.install()
        setup = _set_up(options, cluster, environ, strategy, Path(directory), termination)
        with contextlib.closing(setup.cache), _unwrapped(setup.cache):
            progress = _resume(setup)
            _train_epochs(setup, progress)
            _finish(setup, progress)


def _strategy(options: Options, cluster: Cluster, environ: Mapping[str, str]) -> Any:
    devices = list_devices(int(environ.get("KICKOFF_CPU_DEVICES") or 0))
    name = select_strategy(options.strategy, cluster, len(devices))
    left = wait_for_peers(cluster, options.peer_timeout) if name == "multi-worker" else 0
    strategy = create_strategy(name, cluster, devices, left)
    check_devices(strategy, cluster, len(devices))
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
    dataset = open_dataset(options.data, directory, say)
    dataset = _without_bad_images(dataset, options)
    check(dataset)
    training, validation = split(dataset, options.validation_split, options.seed)
    if not len(training):
        raise InvalidData(f"{options.data}: --validation-split {options.validation_split} leaves no training images")
    say(f"{len(dataset)} images, {len(dataset.classes)} classes: {len(training)} train, {len(validation)} validate")
    keras = tf.keras
    keras.utils.set_random_seed(options.seed)
    if options.precision != "float32":
        keras.mixed_precision.set_global_policy(f"mixed_{options.precision}")
    with strategy.scope():
        model = build_model(keras, options, len(dataset.classes))
        scale = strategy.num_replicas_in_sync if options.scale_learning_rate else 1
        optimizer = keras.optimizers.Adam(options.learning_rate * scale)
        optimizer.build(model.trainable_variables)
    cache = ImageCache(dataset, image_size(options), skip_bad=options.skip_bad_images)
    return Setup(
        options,
        cluster,
        strategy,
        dataset,
        training,
        validation,
        cache,
        model,
        optimizer,
        termination,
        Events(environ if cluster.is_primary else {}),
        checkpoints.Writer(options.checkpoint_dir, options.keep_checkpoints, warn),
    )


def _without_bad_images(dataset: Dataset, options: Options) -> Dataset:
    bad = find_bad_images(dataset)
    if not bad:
        return dataset
    names = ", ".join(dataset.names[index] for index in bad[:10]) + (" …" if len(bad) > 10 else "")
    if not options.skip_bad_images:
        raise InvalidData(f"{len(bad)} unreadable images: {names}; mend them, or give --skip-bad-images")
    warn(f"warning: {len(bad)} unreadable images are left out: {names}")
    return dataset.without(bad)


def _resume(setup: Setup) -> Progress:
    """Where the newest checkpoint left off, on every replica; the start where there is none. Collective."""
    state = checkpoints.load_newest(setup.options.checkpoint_dir, warn) if setup.cluster.is_primary else None
    if state is not None:
        _check_fingerprint(state.fingerprint, _fingerprint(setup), setup.options.checkpoint_dir)
    numbers = np.zeros(7)
    if state is not None:
        numbers[:] = [1, state.step, state.position.epoch, state.position.offset, *state.sums]
    if setup.replicas > 1:
        (numbers,) = loop.broadcast(setup.strategy, [numbers])
    if not numbers[0]:
        return Progress()
    variables = loop.variables_of(setup.model, setup.optimizer)
    values = state.values if state is not None else loop.values_of(variables)
    loop.assign(variables, loop.broadcast(setup.strategy, values) if setup.replicas > 1 else values)
    position = Position(int(numbers[2]), int(numbers[3]))
    say(f"resuming at step {int(numbers[1])}: epoch {position.epoch + 1}, {position.offset} images into it")
    history = [dict(entry) for entry in state.history] if state is not None else []
    return Progress(int(numbers[1]), position, numbers[4:], history)


def _fingerprint(setup: Setup) -> dict[str, Any]:
    options = setup.options
    return {
        "model": options.model,
        "head": options.head,
        "image_size": image_size(options),
        "classes": len(setup.dataset.classes),
        "training_images": len(setup.training),
        "seed": options.seed,
    }


def _check_fingerprint(found: Mapping[str, Any], expected: Mapping[str, Any], directory: str) -> None:
    differing = [
        f"{name} {found.get(name)} there, {value} here" for name, value in expected.items() if found.get(name) != value
    ]
    if differing:
        raise InvalidArguments(f"the checkpoints in {directory} are of another run: {'; '.join(differing)}")


def _train_epochs(setup: Setup, progress: Progress) -> None:
    options = setup.options
    start = progress.position
    schedule = Schedule(len(setup.training), setup.global_batch, options.seed, start)
    total = sum(schedule.steps(epoch) for epoch in range(start.epoch, options.epochs))
    if total <= 0:
        _validate(setup, progress, _compile(setup, start.epoch), None)
        return
    batches = training_batches(setup.strategy, setup.cache, setup.training, schedule, options.batch_size, total - 1)
    held_out = None
    if len(setup.validation):
        held_out = validation_batches(setup.strategy, setup.cache, setup.validation, options.batch_size, setup.replicas)
    steps, first = _compile(setup, start.epoch), progress.step
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


def _compile(setup: Setup, epoch: int) -> loop.Steps:
    options = setup.options
    return loop.Steps(
        tf.keras,
        setup.strategy,
        setup.model,
        setup.optimizer,
        trainable=head_variables(setup.model) if epoch < options.freeze_epochs else None,
        class_weights=class_weights(setup.dataset.labels[setup.training], setup.dataset.classes)
        if options.class_weights
        else None,
        augment=options.augment,
    )


def _train_step(
    setup: Setup, progress: Progress, schedule: Schedule, number: int, steps: loop.Steps, batches: Iterator[Any]
) -> None:
    """One update, and what has to be done at this very step: stop, save, or give up."""
    stop, save = setup.termination.requested, setup.cluster.is_primary and _is_due(setup, progress.step + 1)
    loss, correct, examples, stops, saves = steps.train(next(batches), tf.constant([stop, save], tf.float32))
    if not np.isfinite(loss):
        files = [setup.dataset.names[setup.training[index]] for index in schedule.batch(number)]
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
    options = setup.options
    by_step = options.checkpoint_steps and step % options.checkpoint_steps == 0
    return bool(by_step) or setup.writer.seconds_since_last() > options.checkpoint_minutes * 60


def _save(setup: Setup, progress: Progress, *, wait: bool = False) -> None:
    if not setup.cluster.is_primary or (setup.writer.busy and not wait):
        return
    values = loop.values_of(loop.variables_of(setup.model, setup.optimizer))
    setup.writer.write(
        checkpoints.State(
            progress.step,
            progress.position,
            values,
            progress.sums.tolist(),
            tuple(progress.history),
            _fingerprint(setup),
        ),
        wait=wait,
    )


def _end_epoch(setup: Setup, progress: Progress, steps: loop.Steps, held_out: Any, epoch: int, rate: float) -> None:
    loss, correct, examples = progress.sums
    metrics = {"loss": float(loss / examples), "accuracy": float(correct / examples)}
    loop.agree(setup.strategy, setup.model)
    _check_weights(setup, epoch)
    metrics |= _validate(setup, progress, steps, held_out)
    progress.history.append(metrics)
    progress.sums = np.zeros(3)
    _save(setup, progress)
    if setup.cluster.is_primary:
        say(format_epoch(epoch + 1, setup.options.epochs, metrics, rate))
        setup.events.epoch(epoch + 1, setup.options.epochs, metrics, rate)


def _check_weights(setup: Setup, epoch: int) -> None:
    """ReLU on a CPU turns NaN into 0, so a weight can be lost without the loss ever showing it."""
    for variable in setup.model.variables:
        value = np.asarray(variable)
        if np.issubdtype(value.dtype, np.floating) and not np.all(np.isfinite(value)):
            raise Diverged(f"{variable.path} holds numbers that are not finite after epoch {epoch + 1}")


def _validate(setup: Setup, progress: Progress, steps: loop.Steps, held_out: Any) -> dict[str, float]:
    """Loss and accuracy over the validation examples, each counted once; keeps the confusion matrix."""
    if not len(setup.validation):
        return {}
    if held_out is None:
        held_out = validation_batches(
            setup.strategy, setup.cache, setup.validation, setup.options.batch_size, setup.replicas
        )
    total: Any = 0
    for _ in range(validation_steps(setup.validation, setup.global_batch)):
        total = total + steps.evaluate(next(held_out))
    loss, examples, confusion = total[0], total[1], total[2:]
    classes = len(setup.dataset.classes)
    progress.confusion = confusion.reshape(classes, classes)
    return {"val_loss": float(loss / examples), "val_accuracy": float(np.trace(progress.confusion) / examples)}


def stops_early(history: Sequence[Mapping[str, float]], patience: int) -> bool:
    """True when the last `patience` epochs brought no better val_loss than those before."""
    losses = [entry["val_loss"] for entry in history if "val_loss" in entry]
    return bool(patience) and len(losses) > patience and min(losses[-patience:]) >= min(losses[:-patience])


def _finish(setup: Setup, progress: Progress) -> None:
    """The primary exports; the others wait for it, so that no replica ends well unless there is a model."""
    values = loop.values_of([*setup.model.trainable_variables, *setup.model.non_trainable_variables])
    say(f"weights {loop.digest(values)} after step {progress.step}")
    if setup.cluster.is_primary:
        setup.writer.flush()
        outcome.write(setup.options, setup.dataset, len(setup.training), progress, values)
        say(f"model written to {setup.options.output}")
        metrics = progress.history[-1] if progress.history else {}
        setup.events.finished(metrics, setup.options.output)
    if len(setup.cluster.synchronous) > 1:
        loop.broadcast(setup.strategy, [np.ones(1, np.float32)])


@contextlib.contextmanager
def _unwrapped(cache: ImageCache) -> Iterator[None]:
    """Raises what the input pipeline raised, not TensorFlow's report of it."""
    try:
        yield
    except tf.errors.OpError:
        if cache.error is not None:
            raise cache.error from None
        raise


@contextlib.contextmanager
def _peers_watched(cluster: Cluster) -> Iterator[None]:
    """Says PeerLost where TensorFlow says one of its many names for it."""
    try:
        yield
    except tf.errors.OpError as error:
        lost = not isinstance(error, tf.errors.InvalidArgumentError | tf.errors.ResourceExhaustedError)
        if len(cluster.synchronous) < 2 or not lost:
            raise
        words = next((line for line in error.message.splitlines() if line.strip()), type(error).__name__)
        raise PeerLost(f"{cluster} lost a peer: {words[:300]}") from error
