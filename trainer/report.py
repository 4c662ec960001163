"""What the model card says, and the confusion matrix as a picture. Pure."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_FIGURES = ("loss", "accuracy", "val_loss", "val_accuracy")
_CELL = 24
_MAX_CLASSES = 64
"""Above that many classes the cells would be too small to see; the numbers are in the card."""


def per_class(confusion: npt.NDArray[Any], classes: Sequence[str]) -> dict[str, dict[str, float]]:
    """Precision, recall and number of examples of each class; `confusion` is true x predicted."""
    correct, actual, predicted = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    return {
        name: {
            "precision": _ratio(correct[index], predicted[index]),
            "recall": _ratio(correct[index], actual[index]),
            "examples": int(actual[index]),
        }
        for index, name in enumerate(classes)
    }


def _ratio(part: float, whole: float) -> float:
    return round(float(part / whole), 6) if whole else 0.0


def draw_confusion(confusion: npt.NDArray[Any], classes: Sequence[str]) -> bytes | None:
    """A PNG: a row for each true class, a column for each predicted one, darker where more; None for too many."""
    from PIL import Image, ImageDraw, ImageFont

    count = len(classes)
    if not 0 < count <= _MAX_CLASSES:
        return None
    font = ImageFont.load_default(size=11)
    margin = 12 + int(max(font.getlength(name) for name in classes))
    image = Image.new("RGB", (margin + count * _CELL + 8, margin + count * _CELL + 8), "white")
    draw = ImageDraw.Draw(image)
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    for row, name in enumerate(classes):
        top = margin + row * _CELL
        draw.text((margin - 6, top + _CELL // 2), name, fill="black", font=font, anchor="rm")
        for column in range(count):
            shade = round(255 * (1 - float(shares[row, column])))
            left = margin + column * _CELL
            draw.rectangle((left, top, left + _CELL - 2, top + _CELL - 2), fill=(shade, shade, 255))
            if confusion[row, column]:
                ink = "white" if shade < 128 else "black"
                center = (left + _CELL // 2 - 1, top + _CELL // 2 - 1)
                draw.text(center, str(int(confusion[row, column])), fill=ink, font=font, anchor="mm")
    label = Image.new("RGB", (margin, _CELL), "white")
    for column, name in enumerate(classes):
        strip = label.copy()
        ImageDraw.Draw(strip).text((4, _CELL // 2), name, fill="black", font=font, anchor="lm")
        image.paste(strip.rotate(90, expand=True), (margin + column * _CELL, 0))
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def model_card(
    metrics: Mapping[str, Any],
    confusion: npt.NDArray[Any] | None,
    options: Mapping[str, Any],
    environ: Mapping[str, str],
    code_version: str,
) -> dict[str, Any]:
    """What was trained, on what, by which code and job, and how well on each class."""
    classes = metrics["data"]["classes"]
    return {
        "schema": "kickoff.model-card.v1",
        "model": options["model"],
        "inputs": "image_bytes: encoded PNG, JPEG, GIF or BMP; resized inside",
        "dataset": {name: metrics["data"][name] for name in ("uri", "digest", "classes")},
        "examples": metrics["examples"],
        "metrics": {
            name: metrics[name] for name in ("loss", "accuracy", "val_loss", "val_accuracy") if name in metrics
        },
        "epoch": metrics["exported_epoch"],
        "per_class": per_class(confusion, classes) if confusion is not None else {},
        "confusion_matrix": np.asarray(confusion).astype(int).tolist() if confusion is not None else [],
        "options": dict(options),
        "recipe": environ.get("KICKOFF_RECIPE", ""),
        "run": environ.get("KICKOFF_RUN_ID", ""),
        "job": environ.get("CLOUD_ML_JOB_ID", ""),
        "code_version": code_version,
    }
