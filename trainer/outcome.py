"""What a run leaves behind beside the model: metrics.json, and what it was made of."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from trainer.arguments import Options, image_size
from trainer.datasets import Dataset
from trainer.export import export, to_json
from trainer.models import build_model


def write(options: Options, dataset: Dataset, training: int, progress: Any, values: Sequence[Any]) -> None:
    """Exports the model of these values, built once more outside the strategy, so that nothing of that is saved."""
    model = build_model(tf.keras, options, len(dataset.classes))
    for variable, value in zip([*model.trainable_variables, *model.non_trainable_variables], values, strict=True):
        variable.assign(value)
    documents = {"metrics.json": to_json(metrics_document(options, dataset, training, progress.history))}
    export(model, image_size(options), dataset.classes, documents, options.output)


def metrics_document(
    options: Options, dataset: Dataset, training: int, history: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """The last epoch's figures, all epochs', and what `trainer.evaluate` needs to find the same validation examples."""
    return {
        **(history[-1] if history else {}),
        "epochs": len(history),
        "examples": {"training": training, "validation": len(dataset) - training},
        "history": list(history),
        "data": {
            "uri": options.data,
            "digest": dataset.digest,
            "classes": list(dataset.classes),
            "seed": options.seed,
            "validation_split": options.validation_split,
            "image_size": image_size(options),
            "skip_bad_images": options.skip_bad_images,
        },
    }
