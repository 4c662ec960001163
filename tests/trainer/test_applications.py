"""Models of keras.applications: BatchNorm agrees on all replicas, the frozen base stays, cassava is ResNet50."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trainer.arguments import parse_arguments
from trainer.cluster import Cluster
from trainer.errors import InvalidArguments
from trainer.images import ImageCache
from trainer.inputs import open_inputs
from trainer.loop import Steps, agree, assign, values_of
from trainer.models import build_model, head_variables
from trainer.pipeline import training_batches
from trainer.schedule import Schedule
from trainer.strategies import create_strategy, list_devices
from trainer.update import Update


def moving_means(strategy: Any, model: Any, replica: int) -> Any:
    variables = [variable for variable in model.non_trainable_variables if "moving_mean" in variable.path]
    return np.concatenate(
        [strategy.experimental_local_results(variable.value)[replica].numpy().ravel() for variable in variables]
    )


def small_model(synchronized: bool) -> Any:
    layers = tf.keras.layers
    image = tf.keras.Input((8, 8, 3))
    features = layers.Conv2D(4, 3)(layers.Rescaling(1 / 255)(image))
    features = layers.BatchNormalization(synchronized=synchronized)(features)
    return tf.keras.Model(image, layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(features)))


@pytest.mark.parametrize("synchronized", [False, True])
def test_batch_norm_statistics_agree_on_all_replicas(digits: Path, tmp_path: Path, synchronized: bool) -> None:
    strategy = create_strategy("mirrored", Cluster(), list_devices(2), 0)
    inputs = open_inputs(parse_arguments([f"--data={digits}", "--output=unused/model"], {}), tmp_path)
    with strategy.scope():
        model = small_model(synchronized)
        optimizer = tf.keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
    cache = ImageCache(inputs.dataset, 8)
    schedule = Schedule(len(inputs.training), 32, 1)
    batches = training_batches(strategy, cache, inputs.training, schedule, 16, 1)
    steps = Steps(strategy, Update(tf.keras, model, optimizer))
    steps.train(next(batches), tf.zeros(2))
    cache.close()
    first, second = (moving_means(strategy, model, replica) for replica in (0, 1))
    assert np.allclose(first, second, atol=1e-9) == synchronized, "without synchronization each saw other images"
    agree(strategy, model)
    after = [moving_means(strategy, model, replica) for replica in (0, 1)]
    assert np.array_equal(after[0], after[1])
    assert np.allclose(after[0], (first + second) / 2, atol=1e-7)


def test_the_option_synchronizes_every_batch_norm_of_an_application() -> None:
    argv = ["--data=x", "--output=y", "--model=MobileNet", "--image-size=32", "--sync-batch-norm"]
    model = build_model(tf.keras, parse_arguments(argv, {}), 5)
    base = next(layer for layer in model.layers if hasattr(layer, "layers"))
    norms = [layer for layer in base.layers if isinstance(layer, tf.keras.layers.BatchNormalization)]
    assert len(norms) == 27 and all(layer.synchronized for layer in norms)


def test_a_frozen_base_stays_and_the_head_learns() -> None:
    argv = ["--data=x", "--output=y", "--model=MobileNet", "--image-size=32", "--freeze-epochs=1"]
    model = build_model(tf.keras, parse_arguments(argv, {}), 10)
    optimizer = tf.keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    before = values_of(model.variables)
    steps = Steps(tf.distribute.get_strategy(), Update(tf.keras, model, optimizer, head_variables(model)))
    images = tf.constant(np.random.default_rng(0).integers(0, 255, (4, 32, 32, 3)).astype(np.uint8))
    steps.train((images, tf.constant([0, 1, 2, 3]), tf.ones(4), tf.constant(4.0), tf.zeros((4, 2))), tf.zeros(2))
    moved = [
        variable.path
        for variable, old, new in zip(model.variables, before, values_of(model.variables), strict=True)
        if not np.array_equal(old, new)
    ]
    assert "logits/bias" in moved
    assert all(path.startswith(("dense", "logits")) for path in moved), "the base stays, its BatchNorm as well"


def test_cassava_is_resnet50_with_the_codelabs_head(tmp_path: Path) -> None:
    parsed = parse_arguments(["--data=x", "--output=y", "--model=cassava", "--image-size=64"], {})
    model = build_model(tf.keras, parsed, 5)
    base = next(layer for layer in model.layers if hasattr(layer, "layers"))
    assert base.name == "resnet50"
    assert [layer.units for layer in model.layers if hasattr(layer, "units")] == [1016, 5]
    # A weights file trained elsewhere is taken as it is.
    changed = [value + 1 for value in values_of(base.variables)]
    assign(base.variables, changed)
    base.save_weights(tmp_path / "base.weights.h5")
    again = build_model(
        tf.keras,
        parse_arguments(
            ["--data=x", "--output=y", "--model=cassava", "--image-size=64", f"--weights={tmp_path}/base.weights.h5"],
            {},
        ),
        5,
    )
    loaded = next(layer for layer in again.layers if hasattr(layer, "layers"))
    assert all(map(np.array_equal, values_of(loaded.variables), changed))


@pytest.mark.parametrize(
    ("argument", "words"),
    [("--model=ResNet51", "--model is ResNet51"), ("--weights=nowhere.h5", "--weights is nowhere.h5")],
)
def test_what_does_not_exist_is_named(argument: str, words: str) -> None:
    parsed = parse_arguments(["--data=x", "--output=y", "--model=MobileNet", "--image-size=32", argument], {})
    with pytest.raises(InvalidArguments, match=words):
        build_model(tf.keras, parsed, 5)
