"""The training loop: public APIs of TensorFlow and Keras 3, the same for one device, several, or several machines.

`model.fit` is not supported under MultiWorkerMirroredStrategy with Keras 3 (keras#20601). Every figure that is
reported or decided on is summed over all replicas inside the step, so all of them see the same and act alike.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.errors import InvalidArguments
from trainer.update import Update

SUM = tf.distribute.ReduceOp.SUM


class Steps:
    """The two compiled steps of one model in one synchronous strategy.

    `train(batch, requests)` gives [summed loss, correct, examples, *summed requests] of the global batch, after the
    update; `evaluate(batch)` gives [summed loss, examples, confusion matrix (true x predicted), flattened].
    """

    def __init__(self, strategy: Any, update: Update) -> None:
        self._strategy, self._update = strategy, update
        self.train: Callable[..., npt.NDArray[np.float64]] = self._compiled(self._train_replica)
        self.evaluate: Callable[..., npt.NDArray[np.float64]] = self._compiled(self._evaluate_replica)

    def _compiled(self, replica_step: Callable[..., Any]) -> Callable[..., npt.NDArray[np.float64]]:
        run = tf.function(lambda *values: self._strategy.run(replica_step, values), autograph=False)

        def step(*values: Any) -> npt.NDArray[np.float64]:
            return np.asarray(local(self._strategy, run(*values)), np.float64)

        return step

    def _train_replica(self, batch: Any, requests: Any) -> Any:
        return _all_reduce(tf.concat([self._update(*batch), requests], axis=0))

    def _evaluate_replica(self, batch: Any) -> Any:
        images, labels, weights, _, _ = batch
        probabilities = self._update.model(tf.cast(images, tf.float32), training=False)
        losses = self._update.keras.losses.sparse_categorical_crossentropy(labels, probabilities)
        loss = tf.reduce_sum(losses * weights)
        classes = probabilities.shape[-1]
        predicted = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        confusion = tf.math.confusion_matrix(labels, predicted, classes, weights=weights, dtype=tf.float32)
        return _all_reduce(tf.concat([[loss, tf.reduce_sum(weights)], tf.reshape(confusion, [-1])], axis=0))


def local(strategy: Any, value: Any) -> Any:
    """What was reduced over all replicas, as numpy: each holds the same, so the first local one is as good as any."""
    return strategy.experimental_local_results(value)[0].numpy()


def _all_reduce(value: Any) -> Any:
    return tf.distribute.get_replica_context().all_reduce(SUM, value)


def model_variables(model: Any) -> list[Any]:
    """The trainable variables, then the others: the order in which values are saved and set."""
    return [*model.trainable_variables, *model.non_trainable_variables]


def variables_of(model: Any, optimizer: Any) -> list[Any]:
    """Every variable a checkpoint holds: the model's, then the optimizer's."""
    return [*model_variables(model), *optimizer.variables]


def values_of(variables: Sequence[Any]) -> list[npt.NDArray[Any]]:
    """This replica's values, copied."""
    return [np.array(variable.numpy() if hasattr(variable, "numpy") else variable) for variable in variables]


def assign(variables: Sequence[Any], values: Sequence[npt.NDArray[Any]]) -> None:
    """Raises InvalidArguments when these are not the values of such variables, before any is changed."""
    if [tuple(variable.shape) for variable in variables] != [value.shape for value in values]:
        raise InvalidArguments(
            "the checkpoint holds other variables than this model and its optimizer have: it was written with other "
            "options (--freeze-epochs, --strategy); give them again, or another --checkpoint-dir"
        )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def digest(values: Sequence[npt.NDArray[Any]]) -> str:
    """A short name for exact values: equal on two replicas only if every bit is."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(value).tobytes() for value in values)).hexdigest()[:16]


def broadcast(strategy: Any, values: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """The first replica's values, on every replica. Collective; shapes and dtypes must agree."""
    # Collectives know these four dtypes everywhere; smaller ones fit into them without loss.
    wide = [value if value.dtype in (np.float32, np.float64, np.int32) else _widened(value) for value in values]

    def collect() -> Any:
        context = tf.distribute.get_replica_context()
        first = tf.equal(context.replica_id_in_sync_group, 0)
        # One by one: in one call they would be packed together, and their types differ.
        return [context.all_reduce(SUM, tf.cast(first, value.dtype) * tf.constant(value)) for value in wide]

    results = [local(strategy, value) for value in tf.function(lambda: strategy.run(collect), autograph=False)()]
    return [result.astype(value.dtype) for result, value in zip(results, values, strict=True)]


def total(strategy: Any, value: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The sum of every replica's own values, on each of them. Collective."""

    def collect() -> Any:
        return _all_reduce(tf.constant(value))

    result: npt.NDArray[np.float32] = local(strategy, tf.function(lambda: strategy.run(collect), autograph=False)())
    return result


def _widened(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return value.astype(np.int64 if np.issubdtype(value.dtype, np.integer) else np.float32)


def agree(strategy: Any, model: Any) -> None:
    """Makes the moving statistics of BatchNorm the same on all replicas: their mean. Collective.

    Each replica gathers these from its own part of the batches; without this, what is saved would be the
    statistics of the primary's part alone.
    """
    variables = [variable for variable in model.non_trainable_variables if "float" in str(variable.dtype)]
    if variables and strategy.num_replicas_in_sync > 1:

        def mean() -> Any:
            context = tf.distribute.get_replica_context()
            # The copy is placed on the replica's device; a mere read has none over several processes, and is refused.
            local = [tf.identity(variable.value) for variable in variables]
            return context.all_reduce(tf.distribute.ReduceOp.MEAN, local)

        means = tf.function(lambda: strategy.run(mean), autograph=False)()
        assign(variables, [local(strategy, value) for value in means])
