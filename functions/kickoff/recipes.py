"""Recipe files -> recipes, and which recipes an upload matches. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from kickoff.errors import ConfigurationError, Fault
from kickoff.faults import KeyPath, fault, schema_faults, unknown_key
from kickoff.globs import match_glob
from kickoff.recipe_models import Job, Recipe, Upload, output_fault
from kickoff.runs import CUSTOM
from kickoff.templates import VALUES, TemplateValues, fill, fixed_prefix, left_over, unknown_values
from kickoff.yaml_strict import Document, load_yaml

__all__ = ["Recipe", "Recipes", "Role", "UploadMatch", "load_recipes", "parse_recipe"]

Role = Literal["object", "member", "marker", "manifest"]


@dataclass(frozen=True)
class UploadMatch:
    """An object that a recipe watches.

    `root` is ``gs://bucket/root/``, or the object's own URI where the recipe has no `complete`: then every
    object is a dataset of its own and the role is ``object``.
    """

    recipe: Recipe
    root: str
    role: Role
    bucket: str
    name: str


@dataclass(frozen=True)
class Recipes:
    """All recipes of a deployment, by name."""

    by_name: Mapping[str, Recipe]
    own: tuple[str, ...] = ()
    """URI prefixes that Kickoff and its jobs write to: objects there never start anything."""

    def __iter__(self) -> Iterator[Recipe]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def get(self, name: str) -> Recipe | None:
        return self.by_name.get(name)

    def scheduled(self) -> list[Recipe]:
        return [recipe for recipe in self if recipe.when.schedule]

    def match_upload(self, bucket: str, name: str) -> list[UploadMatch]:
        """The recipes that an object of this name concerns. Names are taken byte for byte."""
        if f"gs://{bucket}/{name}".startswith(self.own):
            return []
        found = []
        for recipe in self:
            upload = recipe.when.upload
            if upload and upload.bucket == bucket and name.startswith(upload.root):
                role = upload_role(upload, name[len(upload.root) :])
                if role:
                    path = name if role == "object" else upload.root
                    found.append(UploadMatch(recipe, f"gs://{bucket}/{path}", role, bucket, name))
        return found

    def watched(self) -> list[tuple[str, str]]:
        """(recipe, ``gs://bucket/root/``) of every recipe that uploads start."""
        return [(recipe.name, watched_prefix(recipe.when.upload)) for recipe in self if recipe.when.upload]


def upload_role(upload: Upload, relative: str) -> Role | None:
    """What an object is to a recipe, by its name below the root; None: nothing."""
    complete = upload.complete
    if complete and complete.marker == relative:
        return "marker"
    if complete and complete.manifest == relative:
        return "manifest"
    if not relative or not match_glob(upload.match, relative):
        return None
    return "member" if complete else "object"


def watched_prefix(upload: Upload) -> str:
    return f"gs://{upload.bucket}/{upload.root}"


def load_recipes(files: Mapping[str, str], values: TemplateValues) -> Recipes:
    """Read recipe files (name -> text). Raises ConfigurationError with every fault of every file."""
    faults: list[Fault] = []
    loaded: list[tuple[Document, Recipe]] = []
    for file in sorted(files):
        try:
            loaded.append(parse_recipe(file, files[file], values))
        except ConfigurationError as error:
            faults += error.faults
    faults += _duplicates(loaded)
    faults += _loops(loaded, values)
    if faults:
        raise ConfigurationError.from_faults(faults)
    recipes = {recipe.name: recipe for _, recipe in loaded}
    return Recipes(recipes, tuple(_own_prefixes(loaded, values)))


def parse_recipe(file: str, text: str, values: TemplateValues) -> tuple[Document, Recipe]:
    """One recipe file. Raises ConfigurationError; each fault says file, line and key."""
    document = load_yaml(text, file)
    if not isinstance(document.value, dict):
        raise ConfigurationError.from_faults([Fault(file, f"{file}:1: must be a mapping that begins with name:")])
    try:
        recipe = Recipe.model_validate(document.value)
    except ValidationError as error:
        found = [_hinted(each) for each in schema_faults(error, Recipe)]
        raise ConfigurationError.from_faults(document.located(each) for each in found) from None
    faults = [document.located(each) for each in _recipe_faults(recipe)]
    if faults:
        raise ConfigurationError.from_faults(faults)
    return document, _filled(recipe, values)


def _hinted(found: Fault) -> Fault:
    if found.path in ("on", "True", "true"):
        return Fault(found.path, f"{found.path} is not a known key; what starts a recipe is written when:")
    return found


_SWEEP = "sweep"


def _recipe_faults(recipe: Recipe) -> Iterator[Fault]:
    if recipe.name == CUSTOM:
        yield fault(("name",), f"is {CUSTOM!r}, which is kept for requests that bring their own job")
    if recipe.name == _SWEEP:
        yield fault(("name",), f"is {_SWEEP!r}, which is kept for the sweep: schedules are named kickoff-<recipe>")
    if problem := output_fault(recipe.job.output):
        yield fault(("job", "output"), problem)
    for path, text in _strings(recipe.model_dump(mode="python", exclude={"description"}), ()):
        for name in unknown_values(text):
            choices = ", ".join(f"{{{each}}}" for each in VALUES)
            yield fault(path, f"names the unknown value {{{name}}}; known are {choices}")
        rest = fill(text, dict.fromkeys(VALUES, "x"))
        if (found := left_over(rest)) and not unknown_values(text):
            yield fault(path, f"still holds the placeholder {found!r}; put the real value there")
    for index, name in enumerate(recipe.allow.override):
        if not _overridable(name):
            yield unknown_key(("allow", "override", index, name), OVERRIDABLE)


OVERRIDABLE = (
    *(name for name in Job.model_fields if name not in ("args", "env", "labels", "scheduling", "accelerator", "disk")),
    *("args.*", "env.*", "accelerator", "accelerator.type", "accelerator.count", "disk"),
    *("scheduling.timeout", "scheduling.max_wait", "scheduling.strategy"),
    *("scheduling.restart_on_worker_restart", "scheduling.disable_retries"),
)
"""What `allow.override` may list; ``args.*`` stands for any one argument, too."""


def _overridable(name: str) -> bool:
    head, _, tail = name.partition(".")
    return name in OVERRIDABLE or (head in ("args", "env") and bool(tail))


def _strings(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(item, (*path, str(key)))
    elif isinstance(value, Sequence):
        for index, item in enumerate(value):
            yield from _strings(item, (*path, index))


def _filled(recipe: Recipe, values: TemplateValues) -> Recipe:
    """The recipe with what is watched spelled out; the job's values are filled when it is built."""
    known = values.mapping(recipe.name)
    if recipe.job.dataset:
        job = recipe.job.model_copy(update={"dataset": fill(recipe.job.dataset, known)})
        recipe = recipe.model_copy(update={"job": job})
    upload = recipe.when.upload
    if not upload:
        return recipe
    texts = {name: fill(getattr(upload, name), known) for name in ("bucket", "root", "match")}
    when = recipe.when.model_copy(update={"upload": upload.model_copy(update=texts)})
    return recipe.model_copy(update={"when": when})


def _duplicates(loaded: list[tuple[Document, Recipe]]) -> Iterator[Fault]:
    first: dict[str, str] = {}
    for document, recipe in loaded:
        if recipe.name in first:
            yield document.located(
                fault(("name",), f"is {recipe.name!r}, as in {first[recipe.name]}; names are unique")
            )
        first.setdefault(recipe.name, document.file)


# The loop guard --------------------------------------------------------------------------------------------------


def _outputs(recipe: Recipe, values: TemplateValues) -> str:
    """The part of the output's URI that all runs of a recipe share."""
    return fixed_prefix(fill(recipe.job.output, values.mapping(recipe.name)))


def _own_prefixes(loaded: list[tuple[Document, Recipe]], values: TemplateValues) -> Iterator[str]:
    if values.staging:
        yield folder(values.staging)
    for _, recipe in loaded:
        output = _outputs(recipe, values)
        if output.startswith("gs://"):
            yield output


def folder(uri: str) -> str:
    return uri if uri.endswith("/") else uri + "/"


def overlap(watched: str, written: str) -> bool:
    """Whether an object below `written` can lie below `watched`."""
    return written.startswith(watched) or watched.startswith(written)


def _loops(loaded: list[tuple[Document, Recipe]], values: TemplateValues) -> Iterator[Fault]:
    """Objects that our own jobs write must not start jobs: an endless loop costs money by the minute."""
    for document, watcher in loaded:
        if not watcher.when.upload:
            continue
        watched = watched_prefix(watcher.when.upload)
        path = ("when", "upload", "root")
        if values.staging and overlap(watched, folder(values.staging)):
            yield document.located(fault(path, f"watches {watched}, where Kickoff keeps its own {values.staging}"))
        for _, writer in loaded:
            written = _outputs(writer, values)
            if written and overlap(watched, written):
                whose = "its own" if writer.name == watcher.name else f"recipe {writer.name}'s"
                yield document.located(
                    fault(path, f"watches {watched}, and {whose} jobs write to {written}: they would start each other")
                )
