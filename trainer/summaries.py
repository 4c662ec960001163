"""TensorBoard scalars and graph, by the primary alone, without the tensorboard package.

Since TensorFlow 2.20 `tf.summary.scalar` needs that package; the event writer itself does not. So the two lines of
metadata by which TensorBoard knows a scalar are written here, and 30 MB of image are saved.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainer.errors import TrainerError
from trainer.progress import warn
from trainer.storage import is_gs, join, write

_PROFILED = range(10, 20)


class Summaries:
    """Writes into `log_dir`, local or gs:// (then through a folder of `directory`, uploaded at every flush).

    A run never fails over its curves: what cannot be written is said, and the rest of them left out.
    """

    def __init__(self, log_dir: str, directory: Path) -> None:
        self._log_dir = log_dir
        self._local = directory / "logs" if is_gs(log_dir) else Path(log_dir)
        self._writer: Any = None
        self._profiling = False
        if log_dir:
            with self._forgiven():
                self._writer = tf.summary.create_file_writer(str(self._local))
            self._metadata = tf.compat.v1.SummaryMetadata(
                plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"),
                data_class="DATA_CLASS_SCALAR",
            )

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._end_profile()
        if self._writer is not None:
            with self._forgiven(), self._writer.as_default(step):
                for name, value in values.items():
                    tf.summary.write(name, tf.constant(value, tf.float32), metadata=self._metadata)
            self.flush()

    def graph(self, model: Any, image_size: int) -> None:
        if self._writer is not None:
            call = tf.function(lambda image: model(image, training=False), autograph=False)
            concrete = call.get_concrete_function(tf.TensorSpec((1, image_size, image_size, 3), tf.float32))
            with self._forgiven(), self._writer.as_default(0):
                tf.summary.graph(concrete.graph)

    def profile(self, step: int) -> None:
        """Called before each step: records steps 10 to 20, which are compiled and warm, or less in a short epoch."""
        if self._writer is not None and step == _PROFILED.start:
            with self._forgiven():
                tf.profiler.experimental.start(str(self._local))
                self._profiling = True
        elif step == _PROFILED.stop:
            self._end_profile()

    def _end_profile(self) -> None:
        if self._profiling:
            self._profiling = False
            with self._forgiven():
                tf.profiler.experimental.stop()
            self.flush()

    def flush(self) -> None:
        if self._writer is None:
            return
        with self._forgiven():
            self._writer.flush()
        if is_gs(self._log_dir):
            try:
                for path in self._local.rglob("*"):
                    if path.is_file():
                        write(join(self._log_dir, path.relative_to(self._local).as_posix()), path.read_bytes())
            except TrainerError as error:
                warn(f"warning: {error}")

    @contextlib.contextmanager
    def _forgiven(self) -> Iterator[None]:
        try:
            yield
        except tf.errors.OpError as error:
            warn(f"warning: no more TensorBoard events in {self._log_dir}: {error.message.splitlines()[0]}")
            self._writer = None
