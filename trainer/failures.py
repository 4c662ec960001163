"""TensorFlow's errors, told apart: a lost peer, an image that cannot be decoded, or neither."""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from trainer.cluster import Cluster
from trainer.errors import PeerLost
from trainer.images import ImageCache

_OWN_FAULTS = (
    tf.errors.InvalidArgumentError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnimplementedError,
)


@contextlib.contextmanager
def image_errors_unwrapped(cache: ImageCache) -> Iterator[None]:
    """Raises what the input pipeline raised, not TensorFlow's report of it."""
    try:
        yield
    except tf.errors.OpError:
        if cache.error is not None:
            raise cache.error from None
        raise


@contextlib.contextmanager
def peers_watched(cluster: Cluster) -> Iterator[None]:
    """Says PeerLost where TensorFlow says one of its many names for it."""
    try:
        yield
    except tf.errors.OpError as error:
        if isinstance(error, _OWN_FAULTS) or not cluster.peers:
            raise
        raise PeerLost(f"{cluster} lost a peer: {_first_line(error)}") from error


def _first_line(error: Any) -> str:
    return next((line for line in error.message.splitlines() if line.strip()), type(error).__name__)[:300]
