"""What a run leaves behind beside the model: metrics.json, and what it was made of."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.arguments import Options, image_size
from trainer.export import export, to_json
from trainer.inputs import Inputs
from trainer.loop import assign, model_variables
from trainer.milestones import Milestones
from trainer.models import build_model
from trainer.report import draw_confusion, model_card
from trainer.storage import explained
from trainer.version import code_version


def write(
    options: Options, inputs: Inputs, reached: Milestones, values: Sequence[Any], environ: Mapping[str, str]
) -> None:
    """Exports the model of these values, built once more outside the strategy, so that nothing of that is saved."""
    model = plain_model(options, inputs, values)
    metrics = metrics_document(options, inputs, reached)
    card = model_card(metrics, reached.confusion, asdict(options), environ, code_version())
    documents = {"metrics.json": to_json(metrics), "model_card.json": to_json(card)}
    picture = None if reached.confusion is None else draw_confusion(reached.confusion, inputs.dataset.classes)
    if picture is not None:
        documents["confusion_matrix.png"] = picture
    with explained("write", options.output):
        export(model, image_size(options), inputs.dataset.classes, documents, options.output)


def plain_model(options: Options, inputs: Inputs, values: Sequence[Any]) -> Any:
    """A model outside every strategy with the given values: its trainable variables', then the others'."""
    model = build_model(tf.keras, options, len(inputs.dataset.classes))
    assign(model_variables(model), values)
    return model


def chosen_metrics(options: Options, reached: Milestones) -> dict[str, float]:
    """The figures of the epoch whose weights are exported; none before the first epoch has ended."""
    return dict(reached.history[reached.chosen_epoch(options.early_stopping) - 1]) if reached.history else {}


def metrics_document(options: Options, inputs: Inputs, reached: Milestones) -> dict[str, Any]:
    """The exported epoch's figures, all epochs', and how `trainer.evaluate` finds the same held-out examples."""
    history, chosen = reached.history, reached.chosen_epoch(options.early_stopping)
    return {
        **chosen_metrics(options, reached),
        "epochs": len(history),
        "exported_epoch": chosen,
        "steps": reached.step,
        "examples": {
            "training": len(np.setdiff1d(inputs.training, reached.undecodable)),
            "validation": len(np.setdiff1d(inputs.validation, reached.undecodable)),
        },
        "undecodable": [inputs.dataset.names[index] for index in reached.undecodable],
        "history": history,
        "data": {
            "uri": options.data,
            "digest": inputs.dataset.digest,
            "classes": list(inputs.dataset.classes),
            "seed": options.seed,
            "validation_split": options.validation_split,
            "image_size": image_size(options),
            "skip_bad_images": options.skip_bad_images,
        },
    }
