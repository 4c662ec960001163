"""The command line of the trainer. Pure: the environment comes in as a mapping."""

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, cast

from trainer.errors import InvalidArguments

STRATEGIES = ("auto", "none", "mirrored", "multi-worker", "parameter-server")


@dataclass(frozen=True)
class Options:
    """Every option, with its default. `batch_size` is per replica; sizes are pixels, times as named."""

    data: str
    output: str
    checkpoint_dir: str
    log_dir: str
    model: str = "flowers"
    strategy: str = "auto"
    epochs: int = 10
    batch_size: int = 32
    image_size: int = 0
    learning_rate: float = 1e-3
    scale_learning_rate: bool = False
    seed: int = 123
    validation_split: float = 0.2
    head: Literal["pool", "flatten"] = "pool"
    weights: str = "none"
    freeze_epochs: int = 0
    sync_batch_norm: bool = False
    precision: Literal["float32", "bfloat16"] = "float32"
    class_weights: bool = False
    augment: bool = False
    early_stopping: int = 0
    skip_bad_images: bool = False
    checkpoint_steps: int = 0
    checkpoint_minutes: float = 5.0
    keep_checkpoints: int = 3
    peer_timeout: float = 600.0
    profile: bool = False


_HELP = {
    "data": "class folders of images, TFRecords, a manifest or a snapshot: gs://…, /gcs/…, a local path, or tfds:NAME",
    "output": "model directory (default: AIP_MODEL_DIR), local or gs://",
    "checkpoint_dir": "checkpoints (default: AIP_CHECKPOINT_DIR, else <output>/../checkpoints)",
    "log_dir": "TensorBoard events (default: AIP_TENSORBOARD_LOG_DIR; none: not written)",
    "model": "digits, flowers, cassava, or the name of any model of keras.applications",
    "batch_size": "examples per replica and step",
    "image_size": "side in pixels (default: what the model is known for)",
    "scale_learning_rate": "multiply the learning rate by the number of replicas",
    "head": "flowers: global average pooling, or the codelab's Flatten",
    "weights": "keras.applications: none, imagenet, or a weights file (local or gs://)",
    "freeze_epochs": "train the head alone for that many epochs first",
    "sync_batch_norm": "batch statistics over all replicas at each step (default: averaged once an epoch)",
    "class_weights": "weight classes by the inverse of their frequency",
    "augment": "random flips and brightness, the same ones on any number of replicas",
    "early_stopping": "stop after that many epochs without a better validation loss (0: never)",
    "skip_bad_images": "count unreadable images instead of refusing them",
    "checkpoint_steps": "also write a checkpoint every so many steps (0: by time and epoch only)",
    "checkpoint_minutes": "also write a checkpoint every so many minutes",
    "peer_timeout": "seconds to wait for the other replicas to appear",
    "profile": "write a TensorBoard profile of steps 10 to 20",
}
_CHOICES: dict[str, Sequence[str]] = {
    "strategy": STRATEGIES,
    "head": ("pool", "flatten"),
    "precision": ("float32", "bfloat16"),
}
_MINIMUM = {"epochs": 1, "batch_size": 1, "keep_checkpoints": 1}
_IMAGE_SIZES = {"digits": 8, "flowers": 180, "cassava": 300}


def parse_arguments(argv: Sequence[str], environ: Mapping[str, str]) -> Options:
    """Options from the command line and the AIP_* variables; raises InvalidArguments with every fault, one a line.

    An option of several words may be written with hyphens or underscores, so that a recipe's keys pass as they are.
    """
    parser = argparse.ArgumentParser(prog="python -m trainer.task", exit_on_error=False, allow_abbrev=False)
    for option in fields(Options):
        flags = [f"--{option.name.replace('_', '-')}"] + ([f"--{option.name}"] if "_" in option.name else [])
        parser.add_argument(*flags, dest=option.name, **_argparse_settings(option.name, option.type))
    try:
        values, unknown = parser.parse_known_args(list(argv))
    except argparse.ArgumentError as error:
        raise InvalidArguments(str(error)) from error
    given = {name: value for name, value in vars(values).items() if value is not None}
    faults = [f"{word} is not an option; --help lists them" for word in unknown]
    _fill_places(given, environ, faults)
    if not faults:
        options = Options(**given)
        faults = find_faults(options)
        if not faults:
            return options
    raise InvalidArguments("\n".join(faults))


def find_faults(options: Options) -> list[str]:
    """What is out of range, in words that name option, value and limit."""
    faults = []
    for option in fields(Options):
        value, minimum = getattr(options, option.name), _MINIMUM.get(option.name, 0)
        if option.name != "learning_rate" and isinstance(value, int | float) and not value >= minimum:
            faults.append(f"--{option.name.replace('_', '-')} is {value}; it must be at least {minimum}")
    if options.seed >= 2**32:
        faults.append(f"--seed is {options.seed}; it must be below 4294967296")
    if not 0 < options.learning_rate < math.inf:
        faults.append(f"--learning-rate is {options.learning_rate}; it must be a finite number above 0")
    if not 0 <= options.validation_split < 1:
        faults.append(f"--validation-split is {options.validation_split}; it must be at least 0 and below 1")
    if options.profile and not options.log_dir:
        faults.append("--profile needs somewhere to write to; give --log-dir or AIP_TENSORBOARD_LOG_DIR")
    if options.early_stopping and not options.validation_split:
        faults.append("--early-stopping needs validation data; --validation-split is 0")
    if options.model in ("digits", "flowers"):
        given = {"freeze-epochs": options.freeze_epochs, "sync-batch-norm": options.sync_batch_norm}
        given["weights"] = options.weights != "none"
        faults += [
            f"--{name} needs a model of keras.applications; --model is {options.model}"
            for name, value in given.items()
            if value
        ]
    if options.head != "pool" and options.model != "flowers":
        faults.append(f"--head is {options.head}; only flowers has a choice of heads, and --model is {options.model}")
    return faults


def find_unsupported(options: Options, strategy: str) -> list[str]:
    """Options that the strategy cannot honour, in words that name the option and the reason."""
    if strategy != "parameter-server":
        return []
    reasons = {
        "scale_learning_rate": "their updates are applied one after another and do not make up one larger batch",
        "sync_batch_norm": "their workers share no step in which statistics could be reduced",
    }
    return [
        f"--{name.replace('_', '-')} has no meaning with parameter servers: {reason}"
        for name, reason in reasons.items()
        if getattr(options, name)
    ]


def image_size(options: Options) -> int:
    """The side of the square images that the model sees, in pixels."""
    return options.image_size or _IMAGE_SIZES.get(options.model, 224)


def _fill_places(given: dict[str, Any], environ: Mapping[str, str], faults: list[str]) -> None:
    if not given.get("data"):
        faults.append("--data is missing; it names the dataset: a directory, gs://…, or tfds:NAME")
    output = given.setdefault("output", environ.get("AIP_MODEL_DIR", ""))
    if not output:
        faults.append("--output is missing and AIP_MODEL_DIR is not set; one of them says where the model goes")
    parent = output.rstrip("/").rpartition("/")[0] or "."
    given.setdefault("checkpoint_dir", environ.get("AIP_CHECKPOINT_DIR") or f"{parent}/checkpoints")
    given.setdefault("log_dir", environ.get("AIP_TENSORBOARD_LOG_DIR", ""))


def _argparse_settings(name: str, kind: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"help": _HELP.get(name), "choices": _CHOICES.get(name)}
    if kind is bool:  # `--augment` and `--augment=true` both: recipes render every argument as KEY=VALUE
        return {**settings, "nargs": "?", "const": True, "type": _boolean}
    return {**settings, "type": cast(Any, kind) if kind in (int, float) else str}


def _boolean(text: str) -> bool:
    if text.lower() in ("true", "1", "yes"):
        return True
    if text.lower() in ("false", "0", "no"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
