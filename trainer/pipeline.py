"""Distributed batches: each replica's share of each step, decoded ahead of the model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.datasets import Indices
from trainer.images import ImageCache
from trainer.schedule import Schedule, share

_AHEAD = 2
"""Batches that are ready before the model asks: enough to hide a slow one, few enough to cost no memory."""
_CALLS = 2
"""Batches in the making; the images of each are decoded on all processors."""


def training_batches(
    strategy: Any, cache: ImageCache, training: Indices, schedule: Schedule, per_replica: int, last_step: int
) -> Any:
    """An iterator over steps, counted from the schedule's start; each value is a PerReplica batch (see `batch`)."""

    def of_step(step: int) -> Indices:
        return training[schedule.batch(min(step, last_step))]  # past the end nobody looks at it

    return _iterate(strategy, cache, per_replica, of_step, schedule.seed)


def validation_batches(strategy: Any, cache: ImageCache, validation: Indices, per_replica: int, replicas: int) -> Any:
    """The same over the validation examples in their order, round and round."""
    size = per_replica * replicas
    steps = validation_steps(validation, size)

    def of_step(step: int) -> Indices:
        return validation[step % steps * size : (step % steps + 1) * size]

    return _iterate(strategy, cache, per_replica, of_step, 0)


def validation_steps(validation: Indices, global_batch: int) -> int:
    return -(-len(validation) // global_batch)


def _iterate(strategy: Any, cache: ImageCache, per_replica: int, of_step: Callable[[int], Indices], seed: int) -> Any:
    def batch(step: Any, replica: Any) -> tuple[Any, ...]:
        """images uint8 (B, S, S, 3), labels (B,), weights (B,) 1|0, count () of the global batch, seeds (B, 2)."""
        whole = of_step(int(step))
        indices, count = share(whole, int(replica), per_replica)
        images = cache.images(indices)
        weights = np.where(np.arange(per_replica) < count, cache.weights(indices), 0).astype(np.float32)
        seeds = np.stack([np.full(per_replica, seed + int(step)), indices], axis=1).astype(np.int32)
        return images, cache.labels[indices], weights, np.float32(len(whole)), seeds

    size = cache.size
    shapes = ((per_replica, size, size, 3), (per_replica,), (per_replica,), (), (per_replica, 2))

    def mapped(counter: Any, first: int, local: int) -> tuple[Any, ...]:
        values = tf.numpy_function(
            batch, (counter // local, first + counter % local), (tf.uint8, tf.int32, tf.float32, tf.float32, tf.int32)
        )
        return tuple(tf.ensure_shape(value, shape) for value, shape in zip(values, shapes, strict=True))

    def of_worker(context: Any) -> Any:
        # Endless and of static shape, so that TensorFlow need not ask the other workers whether they have data left.
        local = context.num_replicas_in_sync // context.num_input_pipelines
        counter = tf.data.Dataset.counter()
        dataset = counter.map(
            lambda number: mapped(number, context.input_pipeline_id * local, local),
            num_parallel_calls=_CALLS,
            deterministic=True,
        )
        options = tf.data.Options()
        options.threading.private_threadpool_size = _CALLS  # decoding must not wait for the model's threads
        return dataset.prefetch(_AHEAD).with_options(options)

    return iter(strategy.distribute_datasets_from_function(of_worker))
