"""The models: digits, the codelab's flowers, and everything in keras.applications by name.

Every model takes uint8-valued images (batch, size, size, 3) in 0..255 and gives class probabilities, so that what
is exported needs no preprocessing outside it. `keras` is Keras 3, or tf_keras where parameter servers need it.
"""

import tempfile
from pathlib import Path
from typing import Any

from trainer.arguments import Options, image_size
from trainer.errors import InvalidArguments
from trainer.storage import is_gs, read


def build_model(keras: Any, options: Options, classes: int) -> Any:
    """A built model; call it in the strategy's scope. Raises InvalidArguments, as for images too small for it."""
    try:
        return _build(keras, options, classes)
    except ValueError as error:
        words = " ".join(str(error).split())[:300]
        raise InvalidArguments(f"--model {options.model} with --image-size {image_size(options)}: {words}") from error


def _build(keras: Any, options: Options, classes: int) -> Any:
    size = image_size(options)
    image = keras.Input((size, size, 3), name="image")
    if options.model == "digits":
        features = _digits(keras, image)
    elif options.model == "flowers":
        features = _flowers(keras, image, options.head)
    else:
        features = _application(keras, image, options)
    # Softmax in float32 whatever the precision: in bfloat16 probabilities have three digits.
    logits = keras.layers.Dense(classes, dtype="float32", name="logits")(features)
    return keras.Model(image, keras.layers.Softmax(dtype="float32", name="probabilities")(logits), name=_name(options))


def set_precision(keras: Any, options: Options) -> None:
    """For every model that is built after it in this process."""
    if options.precision != "float32":
        keras.mixed_precision.set_global_policy(f"mixed_{options.precision}")


def head_variables(model: Any) -> list[Any]:
    """The trainable variables outside the pretrained base: what is trained while the base is frozen."""
    return [
        variable
        for layer in model.layers
        if not hasattr(layer, "layers")  # the base is a model within the model
        for variable in layer.trainable_variables
    ]


def _name(options: Options) -> str:
    return options.model.lower().replace("-", "_")


def _convolution(keras: Any, filters: int, features: Any) -> Any:
    return keras.layers.Conv2D(filters, 3, padding="same", activation="relu")(features)


def _digits(keras: Any, image: Any) -> Any:
    """Small enough for three replicas on two cores, and right on 98 of 100 of scikit-learn's 8x8 digits."""
    features = _convolution(keras, 32, keras.layers.Rescaling(1 / 255.0)(image))
    features = keras.layers.MaxPooling2D()(_convolution(keras, 64, features))
    return keras.layers.Dense(64, activation="relu")(keras.layers.Flatten()(features))


def _flowers(keras: Any, image: Any, head: str) -> Any:
    """The codelab's network. Flatten feeds 3.96 M of 3.99 M weights, 16 MB to reduce at each step; pooling 0.1 MB."""
    features = keras.layers.Rescaling(1 / 255.0)(image)
    for filters in (16, 32, 64):
        features = keras.layers.Conv2D(filters, 3, padding="same")(features)
        # The codelab has ReLU before the pooling. The largest of four is the same either way, and so are the gradients,
        # but here it works on, and keeps for the way back, a quarter of the numbers.
        features = keras.layers.ReLU()(keras.layers.MaxPooling2D()(features))
    join = keras.layers.Flatten() if head == "flatten" else keras.layers.GlobalAveragePooling2D()
    return keras.layers.Dense(128, activation="relu")(join(features))


def _application(keras: Any, image: Any, options: Options) -> Any:
    """A base of keras.applications, global average pooling and the codelab's Dense(1016)."""
    name = "ResNet50" if options.model == "cassava" else options.model
    constructor, preprocess = _find_application(keras, name)
    weights = options.weights if options.weights == "imagenet" else None
    base = constructor(weights=weights, include_top=False, input_shape=tuple(image.shape[1:]))
    if options.weights not in ("imagenet", "none"):
        _load_weights(base, options.weights)
    if options.sync_batch_norm:
        base = _synchronized(keras, base)
    inputs = preprocess(image) if preprocess else image
    if options.freeze_epochs:
        _freeze_batch_norm(keras, base)
    features = base(inputs)
    features = keras.layers.GlobalAveragePooling2D()(features)
    return keras.layers.Dense(1016, activation="relu")(features)


def _synchronized(keras: Any, base: Any) -> Any:
    """The same model whose BatchNorm reduces its batch statistics over all replicas at each step."""

    def clone(layer: Any) -> Any:
        config = layer.get_config()
        if isinstance(layer, keras.layers.BatchNormalization):
            config["synchronized"] = True
        return type(layer).from_config(config)

    copy = keras.models.clone_model(base, clone_function=clone)
    copy.set_weights(base.get_weights())
    return copy


def _freeze_batch_norm(keras: Any, base: Any) -> None:
    """While a base is frozen, and when it is fine-tuned after that, its BatchNorm keeps what it was trained with.

    Not by `base(inputs, training=False)`: the outer model's `training` would override that.
    https://keras.io/guides/transfer_learning/
    """
    for layer in base.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.trainable = False


def _find_application(keras: Any, name: str) -> tuple[Any, Any]:
    """(constructor, preprocess_input) of that name; the module that holds both is the one that belongs to it."""
    applications = keras.applications
    constructor = getattr(applications, name, None)
    if constructor is None or isinstance(constructor, type(applications)):
        known = sorted(entry for entry in dir(applications) if entry[:1].isupper())
        raise InvalidArguments(f"--model is {name}; it must be digits, flowers, cassava or one of {', '.join(known)}")
    for module in vars(applications).values():
        if hasattr(module, "preprocess_input") and hasattr(module, name):
            return constructor, module.preprocess_input
    return constructor, None


def _load_weights(base: Any, uri: str) -> None:
    try:
        if not is_gs(uri):
            base.load_weights(uri)
            return
        with tempfile.TemporaryDirectory(prefix="kickoff-weights-") as directory:
            path = Path(directory) / uri.rpartition("/")[2]
            path.write_bytes(read(uri))
            base.load_weights(str(path))
    except (FileNotFoundError, ValueError, OSError) as error:
        raise InvalidArguments(f"--weights is {uri}: {error}") from error
