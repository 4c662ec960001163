"""One of several replicas whose BatchNorm sees other images than its peers'; test_multi_worker.py runs it.

Prints the moving mean after one step, and what it is once the replicas agreed, as one JSON line.
"""

import json
import os

import tensorflow as tf

from trainer.cluster import parse_cluster
from trainer.loop import Steps, agree
from trainer.strategies import create_strategy
from trainer.update import Update


def main() -> None:
    cluster = parse_cluster(os.environ)
    strategy = create_strategy("multi-worker", cluster, [], 60)
    layers = tf.keras.layers
    with strategy.scope():
        image = tf.keras.Input((2, 2, 3))
        normalized = layers.BatchNormalization(momentum=0.5, name="norm")(image)
        model = tf.keras.Model(image, layers.Dense(2, activation="softmax")(layers.Flatten()(normalized)))
        optimizer = tf.keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
    brightness = 10 if cluster.is_primary else 50
    images = tf.cast(tf.fill((4, 2, 2, 3), brightness), tf.uint8)
    batch = (images, tf.zeros(4, tf.int32), tf.ones(4), tf.constant(8.0), tf.zeros((4, 2), tf.int32))
    Steps(strategy, Update(tf.keras, model, optimizer)).train(batch, tf.zeros(2))
    mean = model.get_layer("norm").moving_mean
    before = mean.numpy().tolist()
    agree(strategy, model)
    print(json.dumps({"before": before, "after": mean.numpy().tolist()}), flush=True)
    os._exit(0)


main()
