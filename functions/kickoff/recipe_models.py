"""What a recipe file may say. ``docs/schemas/recipe.json`` is generated from these models. Pure."""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from kickoff.faults import shown
from kickoff.machines import BOOT_DISK_TYPES
from kickoff.recipe_types import AcceleratorName, Cron, Duration, Glob, Section, Zone
from kickoff.runs import RECIPE_NAME

STRATEGIES = ("STANDARD", "SPOT", "FLEX_START", "ON_DEMAND", "LOW_COST")
REDUCTION_SERVER_IMAGE = "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
"""https://cloud.google.com/vertex-ai/docs/training/distributed-training#reduce_training_time_with_reduction_server"""


class Complete(Section):
    """When a dataset of many files is whole: exactly one of `marker`, `manifest` and `quiet`."""

    marker: str | None = None
    """The object below the root whose arrival says that the dataset is whole: ``_SUCCESS``."""
    manifest: str | None = None
    """A marker that lists the members: names, and generations or crc32c if wanted."""
    quiet: Duration | None = None
    """No object of the dataset was added or changed for so long."""
    settle: Duration = 120
    """With a marker or manifest that came before the last members: start when quiet for so long."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in ("marker", "manifest", "quiet") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"has {' and '.join(given) or 'none'} of marker, manifest and quiet; exactly one is needed"
            )
        for name in given:
            value = getattr(self, name)
            if isinstance(value, str) and (not value or value.startswith("/") or value.endswith("/")):
                raise ValueError(f"has {name} {value!r}; it must name one object below the root")
        return self


class Upload(Section):
    """Objects of one bucket below one root."""

    bucket: str = Field(min_length=3, max_length=222)
    root: str = Field(default="", max_length=900)
    """``datasets/flowers/``: the part of the names before the dataset; empty: the whole bucket."""
    match: Glob = "**"
    """A glob over the rest of the name (see globs.py)."""
    complete: Complete | None = None
    """None: every object is a dataset of its own."""

    @model_validator(mode="after")
    def _folder(self) -> Self:
        if self.root and (not self.root.endswith("/") or self.root.startswith("/")):
            raise ValueError(f"has root {self.root!r}; it must end with / and not begin with it")
        if "/" in self.bucket or self.bucket.startswith("gs:"):
            raise ValueError(f"has bucket {self.bucket!r}; write the bucket's name alone, and the folder as root")
        return self


class Message(Section):
    """Messages on the topic ``training-requests`` that name the recipe. Nothing to set."""


class Schedule(Section):
    """A cron schedule, read as Cloud Scheduler reads it."""

    cron: Cron
    timezone: Zone = "Etc/UTC"


class When(Section):
    """What starts the recipe: at least one."""

    upload: Upload | None = None
    message: Message | None = None
    schedule: Schedule | None = None

    @model_validator(mode="after")
    def _any(self) -> Self:
        if not self.model_fields_set & {"upload", "message", "schedule"}:
            raise ValueError("names nothing that starts the recipe; give upload, message or schedule")
        return self


class Accelerator(Section):
    type: AcceleratorName
    count: int = Field(default=1, ge=1)


class Disk(Section):
    type: Literal[BOOT_DISK_TYPES] = "pd-ssd"  # type: ignore[valid-type]
    size_gb: int = Field(default=100, ge=100, le=64000)


def _pool(value: object) -> object:
    return {"replicas": value} if isinstance(value, int) else value


class Pool(Section):
    """One more worker pool, where it differs from the workers: ``ps: 2`` is short for ``ps: {replicas: 2}``."""

    replicas: int = Field(ge=1)
    machine_type: str | None = None
    accelerator: Accelerator | None = None
    image: str | None = None


ExtraPool = Annotated[Pool | None, BeforeValidator(_pool, json_schema_input_type=int | Pool | None)]


class Scheduling(Section):
    """https://cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec#Scheduling"""

    timeout: Duration | None = None
    """Vertex AI's own default is 7 days, and the worst-case price follows it: set one."""
    max_wait: Duration | None = None
    strategy: Literal[STRATEGIES] | None = None  # type: ignore[valid-type]
    restart_on_worker_restart: bool | None = None
    """None: true for synchronous jobs of several replicas, as TensorFlow cannot take a replica back."""
    disable_retries: bool | None = None


Argument = str | int | float


def _argument_map(value: object) -> object:
    """Booleans and nulls have no one spelling on a command line."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if item is None or isinstance(item, bool | list | dict):
                raise ValueError(f'has {name} {shown(item)}; write the text that the program reads, such as "true"')
    return value


class Job(Section):
    """The CustomJob that a recipe starts. Strings may name the values of templates.py in braces."""

    image: str = "{trainer_image}"
    dataset: str | None = None
    """``gs://bucket/root/``: what a message or a tick trains on that names no other."""
    command: list[str] = Field(default=[])
    args: Annotated[dict[str, Any], BeforeValidator(_argument_map)] = Field(default={})
    """``{epochs: 10}`` becomes the one argument ``--epochs=10``; keys are kept as written."""
    env: Annotated[dict[str, Any], BeforeValidator(_argument_map)] = Field(default={})
    replicas: int = Field(default=1, ge=1)
    """1 primary and the rest workers."""
    machine_type: str = "n1-standard-4"
    accelerator: Accelerator | None = None
    disk: Disk | None = None
    ps: ExtraPool = None
    evaluators: ExtraPool = None
    reduction_servers: ExtraPool = None
    scheduling: Scheduling = Scheduling()
    output: str = "gs://{project}-models/{recipe}/{run_id}"
    """The base output directory; empty: none, and no model is kept. Each run needs its own: the trainer takes a
    directory that another job has claimed for proof that it is a duplicate."""
    service_account: str | None = None
    network: str | None = None
    tensorboard: str | None = None
    persistent_resource: str | None = None
    labels: dict[str, str] = Field(default={})

    @model_validator(mode="after")
    def _pool_two(self) -> Self:
        if self.ps and self.reduction_servers:
            raise ValueError("has ps and reduction_servers; both go to worker pool 2, so only one of them is possible")
        return self


class Allow(Section):
    """What a message may change of the job."""

    override: list[str] = Field(default=[])
    """``replicas``, ``args.epochs``, ``scheduling.timeout``, ``dataset``; ``args.*`` is every argument."""
    machine_type: list[str] = Field(default=[])
    accelerator: list[str] = Field(default=[])


class Limits(Section):
    max_active: int = Field(default=1, ge=0)
    """Runs of the recipe at once; 0: no limit."""
    max_cost_usd: float | None = Field(default=None, gt=0)
    """Against the worst case: price x replicas x timeout."""


class Recipe(Section):
    """One training pipeline: what starts it, and the job it starts."""

    name: str = Field(pattern=RECIPE_NAME)
    description: str = ""
    when: When
    job: Job = Job()
    allow: Allow = Allow()
    limits: Limits = Limits()
    newest_only: bool = False
    """A queued run is superseded by a newer one of the recipe."""
    paused: bool = False
    """New runs are recorded and held until the recipe is no longer paused."""

    @property
    def digest(self) -> str:
        """SHA-256 over everything the recipe says, hex: which version of it a run came from."""
        return canonical_digest(self.model_dump(mode="json"))


def output_fault(output: str) -> str:
    """What is wrong with a job's output before its values are filled; empty: nothing."""
    if not output or "{run_id}" in output:
        return ""
    return f"is {output!r}; it must hold {{run_id}}, so that each run has a place of its own"


def canonical_digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
