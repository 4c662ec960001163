"""Asynchronous training with parameter servers, on tf_keras: Keras 3 loses updates there (keras#18624).

The chief decodes batches and hands each to whichever worker is free (ClusterCoordinator); the workers compute
gradients and apply them to the variables on the parameter servers. A batch that was with a worker that died is
handed out again, so a lost worker slows the job and does not end it. An evaluator, which is in no cluster, measures
checkpoints as they appear. https://www.tensorflow.org/tutorials/distribute/parameter_server_training
"""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainer import checkpoints, loop, outcome
from trainer.arguments import Options, image_size
from trainer.cluster import Cluster
from trainer.errors import Diverged, Terminated
from trainer.evaluator import evaluate_checkpoints
from trainer.failures import peers_watched
from trainer.images import ImageCache
from trainer.inputs import Inputs, open_inputs
from trainer.measure import measure
from trainer.milestones import Milestones, from_state, load_checkpoint
from trainer.models import build_model
from trainer.progress import Events, format_epoch, say, warn
from trainer.rendezvous import answers, wait_for_peers
from trainer.schedule import Schedule, share
from trainer.strategies import cluster_spec, create_strategy
from trainer.summaries import Summaries
from trainer.termination import Termination

_WINDOW = 8
"""Batches per worker between two looks at the loss: more would only fill the chief's memory."""


def run_task(options: Options, cluster: Cluster, environ: Mapping[str, str]) -> None:
    """Plays this replica's part. Workers and parameter servers end when the chief has gone."""
    if cluster.task_type in ("worker", "ps"):
        _serve(cluster)
        return
    with tempfile.TemporaryDirectory(prefix="kickoff-data-") as directory:
        if cluster.task_type == "evaluator":
            evaluate_checkpoints(options, Path(directory))
            return
        with peers_watched(cluster):
            _coordinate(options, cluster, environ, Path(directory))


def _serve(cluster: Cluster) -> None:
    """A TensorFlow server for the chief to use. It would never end by itself: the chief's going ends it."""
    server = tf.distribute.Server(
        cluster_spec(cluster), job_name=cluster.task_type, task_index=cluster.task_index, protocol="grpc"
    )
    say(f"{cluster} serves at {server.target}")
    (chief,) = cluster.hosts["chief"]
    seen, gone = False, 0
    while gone < 3:
        time.sleep(1)
        alive = answers(chief)
        seen, gone = seen or alive, 0 if alive or not seen else gone + 1
    say(f"{cluster}: the chief has gone")


@dataclass(frozen=True)
class _Job:
    """The chief's view of the run."""

    options: Options
    inputs: Inputs
    cache: ImageCache
    coordinator: Any
    step: Any
    model: Any
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
        tf.distribute.coordinator.ClusterCoordinator(strategy),
        _compile(strategy, model, optimizer),
        model,
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
        say(f"resuming at step {reached.step}: epoch {reached.position.epoch + 1}")
    first = reached.step
    schedule = Schedule(len(job.inputs.training), job.options.batch_size, job.options.seed, reached.position)
    for epoch in range(reached.position.epoch, job.options.epochs):
        began, seen, end = time.perf_counter(), reached.sums[2], reached.step + schedule.steps(epoch)
        while reached.step < end:
            count = min(_WINDOW * job.workers, end - reached.step)
            _run_window(job, schedule, reached, first, count)
        rate = (reached.sums[2] - seen) / (time.perf_counter() - began)
        _end_epoch(job, reached, epoch, rate)
    job.writer.flush()
    outcome.write(job.options, job.inputs, reached, _model_values(job), job.environ)
    say(f"model written to {job.options.output}")
    job.events.finished(reached.history[-1] if reached.history else {}, job.options.output)


def _run_window(job: _Job, schedule: Schedule, reached: Milestones, first: int, count: int) -> None:
    """Hands out `count` batches, waits for all of them, and looks at what came back."""
    results = []
    for number in range(reached.step - first, reached.step - first + count):
        batch = job.inputs.training[schedule.batch(number)]
        indices, real = share(batch, 0, job.options.batch_size)
        images = job.cache.images(indices)
        weights = np.where(np.arange(len(indices)) < real, job.cache.weights(indices), 0).astype(np.float32)
        arguments = tuple(map(tf.constant, (images, job.inputs.dataset.labels[indices], weights)))
        results.append(job.coordinator.schedule(job.step, args=arguments))
    job.coordinator.join()
    sums: Any = np.sum([result.fetch() for result in results], axis=0, dtype=np.float64)
    if not np.isfinite(sums[0]):
        raise Diverged(f"the loss is {sums[0]} in steps {reached.step + 1} to {reached.step + count}")
    reached.sums = reached.sums + sums
    reached.step += count
    reached.position = schedule.locate(reached.step - first)
    stop = job.termination.requested
    if stop or job.writer.seconds_since_last() > job.options.checkpoint_minutes * 60:
        _save(job, reached, wait=stop)
    if stop:
        raise Terminated(f"SIGTERM: stopped after step {reached.step}; the next start resumes there")


def _end_epoch(job: _Job, reached: Milestones, epoch: int, rate: float) -> None:
    loop.assign(loop.model_variables(job.plain), _model_values(job))
    held_out, reached.confusion = measure(job.plain, job.inputs, job.cache)
    metrics = reached.epoch_metrics() | held_out
    reached.end_epoch(metrics)
    # The last one is what an evaluator waits for; it must not be skipped because one is still being written.
    _save(job, reached, wait=epoch + 1 == job.options.epochs)
    say(format_epoch(epoch + 1, job.options.epochs, metrics, rate))
    job.events.epoch(epoch + 1, job.options.epochs, metrics, rate)
    job.summaries.scalars(epoch + 1, {**metrics, "images_per_second": rate})


def _save(job: _Job, reached: Milestones, *, wait: bool) -> None:
    if wait or not job.writer.busy:
        job.writer.write(reached.to_state(loop.values_of(job.variables), job.options, job.inputs), wait=wait)


def _model_values(job: _Job) -> list[Any]:
    return loop.values_of(loop.model_variables(job.model))


def _compile(strategy: Any, model: Any, optimizer: Any) -> Any:
    """One update on one worker: (images, labels, weights) -> [summed loss, correct, examples]."""

    def replica_step(images: Any, labels: Any, weights: Any) -> Any:
        with tf.GradientTape() as tape:
            probabilities = model(tf.cast(images, tf.float32), training=True)
            losses = tf.keras.losses.sparse_categorical_crossentropy(labels, probabilities)
            loss = tf.reduce_sum(losses * weights)
            objective = loss / tf.maximum(tf.reduce_sum(weights), 1.0)
        gradients = tape.gradient(objective, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        correct = tf.reduce_sum(loop.hits(labels, probabilities) * weights)
        return tf.stack([loss, correct, tf.reduce_sum(weights)])

    def step(images: Any, labels: Any, weights: Any) -> Any:
        return strategy.run(replica_step, (images, labels, weights))

    return tf.function(step, autograph=False)
