"""The outcome in the model directory: a SavedModel that takes encoded images, and what it was made of.

Only the primary writes. The directory is made whole on the local disk and then copied, `saved_model.pb` last,
so that nobody ever loads half a model.
"""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainer.images import decode
from trainer.storage import publish_directory

LOADABLE = "saved_model.pb"
"""The file without which a SavedModel cannot be loaded."""


def serving_module(model: Any, size: int, classes: Sequence[str]) -> Any:
    """A tf.Module whose signature takes encoded images, with all preprocessing inside.

    TensorFlow Serving and Vertex AI prediction decode `{"b64": …}` for inputs whose name ends in `_bytes`:
    https://cloud.google.com/vertex-ai/docs/predictions/get-online-predictions#encoding-binary-data
    """
    module = tf.Module()
    module.model = model
    module.labels = tf.constant(list(classes))

    def serve(image_bytes: Any) -> Mapping[str, Any]:
        images = tf.map_fn(lambda content: decode(content, size), image_bytes, fn_output_signature=tf.uint8)
        probabilities = model(tf.cast(tf.reshape(images, (-1, size, size, 3)), tf.float32), training=False)
        best = tf.argmax(probabilities, axis=-1)
        return {"probabilities": probabilities, "label": tf.gather(module.labels, best)}

    module.serve = tf.function(serve, input_signature=[tf.TensorSpec((None,), tf.string, name="image_bytes")])
    return module


def export(model: Any, size: int, classes: Sequence[str], documents: Mapping[str, bytes], output: str) -> None:
    """Publishes SavedModel, model.keras, labels.txt and the given documents (file name -> content) at `output`.

    `model` lives outside any distribution strategy.
    """
    with tempfile.TemporaryDirectory(prefix="kickoff-export-") as temporary:
        directory = Path(temporary)
        module = serving_module(model, size, classes)
        tf.saved_model.save(module, str(directory), signatures={"serving_default": module.serve})
        model.save(directory / "model.keras")
        (directory / "labels.txt").write_text("".join(f"{name}\n" for name in classes))
        for name, content in documents.items():
            (directory / name).write_bytes(content)
        publish_directory(directory, output, last=LOADABLE)


def to_json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
