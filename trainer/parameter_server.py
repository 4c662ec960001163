"""Asynchronous training with parameter servers, on tf_keras: Keras 3 loses updates there (keras#18624).

The chief decodes batches and hands each to whichever worker is free (ClusterCoordinator); the workers compute
gradients and apply them to the variables on the parameter servers. A batch that was with a worker that died is
handed out again, so a lost worker slows the job and does not end it. An evaluator, which is in no cluster, measures
checkpoints as they appear. https://www.tensorflow.org/tutorials/distribute/parameter_server_training
"""

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from trainer import checkpoints, loop, outcome
from trainer.arguments import Options, image_size
from trainer.cluster import Cluster
from trainer.errors import Diverged, PeerAbsent, PeerLost, Terminated
from trainer.evaluator import evaluate_checkpoints
from trainer.failures import peers_watched
from trainer.images import ImageCache
from trainer.inputs import Inputs, open_inputs
from trainer.measure import measure
from trainer.milestones import Milestones, close_epoch, from_state, load_best, load_checkpoint
from trainer.models import build_model, set_precision
from trainer.progress import Events, format_epoch, say, warn
from trainer.rendezvous import answers, wait_for_peers
from trainer.schedule import Schedule, share
from trainer.strategies import cluster_spec, create_strategy
from trainer.summaries import Summaries
from trainer.termination import Termination
from trainer.update import build_update

_GONE = 10
"""Seconds without the chief after which it is lost: a platform that starts it again at once finds its servers up, and
one that ends them because it has trained is not told of a failure meanwhile."""
_WINDOW = 8
"""Batches per worker between two looks at the loss: more would only fill the chief's memory."""


def run_task(options: Options, cluster: Cluster, environ: Mapping[str, str]) -> None:
    """Plays this replica's part. Workers and parameter servers end with PeerLost, or PeerAbsent."""
    if cluster.task_type in ("worker", "ps"):
        _serve(cluster, options.peer_timeout)
    set_precision(tf.keras, options)
    with tempfile.TemporaryDirectory(prefix="kickoff-data-") as directory:
        if cluster.task_type == "evaluator":
            evaluate_checkpoints(options, Path(directory))
            return
        with peers_watched(cluster):
            _coordinate(options, cluster, environ, Path(directory))


def _serve(cluster: Cluster, patience: float) -> NoReturn:
    """A TensorFlow server for the chief to use, until the chief has gone.

    That is no success: once the chief has trained, the platform ends the others. A chief that was lost is started
    again and needs them, and a replica that ends with 0 is never started again.
    """
    server = tf.distribute.Server(
        cluster_spec(cluster), job_name=cluster.task_type, task_index=cluster.task_index, protocol="grpc"
    )
    say(f"{cluster} serves at {server.target}")
    (chief,) = cluster.hosts["chief"]
    deadline, seen, gone = time.monotonic() + patience, False, 0
    while gone < _GONE:
        time.sleep(1)
        alive = answers(chief)
        seen, gone = seen or alive, 0 if alive or not seen else gone + 1
        if not seen and time.monotonic() > deadline:
            raise PeerAbsent(f"chief 0 ({chief}) did not answer within {patience:g} s (--peer-timeout)")
    raise PeerLost(f"{cluster}: the chief has gone")


@dataclass(frozen=True)
class _Job:
    """The chief's view of the run."""

    options: Options
    inputs: Inputs
    cache: ImageCache
    strategy: Any
    coordinator: Any
    model: Any
    optimizer: Any
    plain: Any
    """The same model outside the strategy, to measure with."""
    variables: list[Any]
    workers: int
    writer: checkpoints.Writer
    events: Events
    termination: Termination
    summaries: Summaries
    environ: Mapping[str, str]


def _coordinate(options: Options, cluster: Cluster, environ: Mapping[str, str], directory: Path) -> None:
    left = wait_for_peers(cluster, options.peer_timeout)
    strategy = create_strategy("parameter-server", cluster, [], left)
    termination = Termination.install()
    workers = len(cluster.hosts.get("worker", ()))
    say(f"strategy parameter-server: {workers} workers, {len(cluster.hosts['ps'])} parameter servers")
    inputs = open_inputs(options, directory)
    tf.keras.utils.set_random_seed(options.seed)
    with strategy.scope():
        model = build_model(tf.keras, options, len(inputs.dataset.classes))
        optimizer = tf.keras.optimizers.Adam(options.learning_rate)
        optimizer.build(model.trainable_variables)
    job = _Job(
        options,
        inputs,
        ImageCache(inputs.dataset, image_size(options), skip_bad=options.skip_bad_images),
        strategy,
        tf.distribute.coordinator.ClusterCoordinator(strategy),
        model,
        optimizer,
        build_model(tf.keras, options, len(inputs.dataset.classes)),
        loop.variables_of(model, optimizer),
        workers,
        checkpoints.Writer(options.checkpoint_dir, options.keep_checkpoints, warn),
        Events(environ),
        termination,
        Summaries(options.log_dir, directory),
        environ,
    )
    _train(job)


def _train(job: _Job) -> None:
    state = load_checkpoint(job.options, job.inputs)
    reached = Milestones() if state is None else from_state(state)
    if state is not None:
        loop.assign(job.variables, state.values)
        job.writer.last_step, job.writer.kept_step = reached.step, reached.best.step if reached.best else -1
        say(f"resuming at step {reached.step}: epoch {reached.position.epoch + 1}")
    first, step = reached.step, _compile(job, reached.position.epoch)
    schedule = Schedule(len(job.inputs.training), job.options.batch_size, job.options.seed, reached.position)
    job.summaries.graph(job.plain, image_size(job.options))
    for epoch in range(reached.position.epoch, job.options.epochs):
        if reached.stops_early(job.options.early_stopping):
            say(f"stopping early: no better val_loss for {job.options.early_stopping} epochs")
            break
        if epoch == job.options.freeze_epochs:
            step = _compile(job, epoch)
        began, seen, end = time.perf_counter(), reached.sums[2], reached.step + schedule.steps(epoch)
        while reached.step < end:
            count = min(_WINDOW * job.workers, end - reached.step, job.options.checkpoint_steps or end)
            _run_window(job, step, schedule, reached, first, count)
        rate = (reached.sums[2] - seen) / (time.perf_counter() - began)
        _end_epoch(job, reached, epoch, rate)
    job.writer.flush()
    values = _chosen_values(job, reached)
    if reached.confusion is None:
        loop.assign(loop.model_variables(job.plain), values)
        _, reached.confusion = measure(job.plain, job.inputs, job.cache)
    reached.undecodable = sorted(job.cache.bad)
    outcome.write(job.options, job.inputs, reached, values, job.environ)
    say(f"model written to {job.options.output}")
    job.events.finished(outcome.chosen_metrics(job.options, reached), job.options.output)


def _run_window(job: _Job, step: Any, schedule: Schedule, reached: Milestones, first: int, count: int) -> None:
    """Hands out `count` batches, waits for all of them, and looks at what came back."""
    results = []
    for number in range(reached.step - first, reached.step - first + count):
        if job.options.profile:
            job.summaries.profile(number)
        batch = job.inputs.training[schedule.batch(number)]
        indices, real = share(batch, 0, job.options.batch_size)
        images = job.cache.images(indices)
        weights = np.where(np.arange(len(indices)) < real, job.cache.weights(indices), 0).astype(np.float32)
        count_of_batch = np.float32(max(weights.sum(), 1.0))
        seeds = np.stack([np.full(len(indices), job.options.seed + number), indices], axis=1).astype(np.int32)
        arguments = (images, job.inputs.dataset.labels[indices], weights, count_of_batch, seeds)
        results.append(job.coordinator.schedule(step, args=tuple(map(tf.constant, arguments))))
    job.coordinator.join()
    sums: Any = np.sum([result.fetch() for result in results], axis=0, dtype=np.float64)
    if not np.isfinite(sums[0]):
        raise Diverged(f"the loss is {sums[0]} in steps {reached.step + 1} to {reached.step + count}")
    reached.sums = reached.sums + sums
    reached.step += count
    reached.position = schedule.locate(reached.step - first)
    stop, due = job.termination.requested, _is_due(job, reached.step)
    if stop or due:
        _save(job, reached, wait=stop)
    if stop:
        raise Terminated(f"SIGTERM: stopped after step {reached.step}; the next start resumes there")


def _end_epoch(job: _Job, reached: Milestones, epoch: int, rate: float) -> None:
    loop.assign(loop.model_variables(job.plain), _model_values(job))
    held_out, reached.confusion = measure(job.plain, job.inputs, job.cache)
    metrics = reached.epoch_metrics() | held_out
    # An evaluator waits for the last one.
    needed = close_epoch(reached, metrics, job.options, job.writer)
    _save(job, reached, wait=needed)
    say(format_epoch(epoch + 1, job.options.epochs, metrics, rate))
    job.events.epoch(epoch + 1, job.options.epochs, metrics, rate)
    job.summaries.scalars(epoch + 1, {**metrics, "images_per_second": rate})


def _is_due(job: _Job, step: int) -> bool:
    return job.writer.is_due(step, job.options.checkpoint_steps, job.options.checkpoint_minutes)


def _save(job: _Job, reached: Milestones, *, wait: bool) -> None:
    if wait or not job.writer.busy:
        job.writer.write(reached.to_state(loop.values_of(job.variables), job.options, job.inputs), wait=wait)


def _model_values(job: _Job) -> list[Any]:
    return loop.values_of(loop.model_variables(job.model))


def _chosen_values(job: _Job, reached: Milestones) -> Sequence[Any]:
    """The model's values; with early stopping those of the epoch with the lowest val_loss."""
    values = _model_values(job)
    if reached.is_past_best(job.options.early_stopping):
        state = load_best(job.options, reached)
        if state is None:
            reached.best = None
            return values
        reached.confusion = None
        return state.values[: len(values)]
    return values


def _compile(job: _Job, epoch: int) -> Any:
    """One update on one worker: (images, labels, weights, count, seeds) -> [summed loss, correct, examples]."""
    update = build_update(job.options, job.inputs, job.model, job.optimizer, epoch)
    return tf.function(lambda *batch: job.strategy.run(update, batch), autograph=False)
