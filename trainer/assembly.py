"""What a synchronous run is made of: its strategy, data, model, optimizer, and where it reports to."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainer import checkpoints
from trainer.arguments import Options, image_size
from trainer.cluster import Cluster, select_strategy
from trainer.images import ImageCache
from trainer.inputs import Inputs, open_inputs
from trainer.models import build_model, set_precision
from trainer.progress import Events, say, warn
from trainer.rendezvous import wait_for_peers
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


def open_strategy(options: Options, cluster: Cluster, environ: Mapping[str, str]) -> Any:
    devices = list_devices(int(environ.get("KICKOFF_CPU_DEVICES") or 0))
    name = select_strategy(options.strategy, cluster, len(devices))
    left = wait_for_peers(cluster, options.peer_timeout, len(devices)) if name == "multi-worker" else 0
    strategy = create_strategy(name, cluster, devices, left)
    say(f"strategy {name}: {cluster}, {strategy.num_replicas_in_sync} replicas, {len(devices) or 'no'} accelerators")
    return strategy


def assemble(
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
    set_precision(keras, options)
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
