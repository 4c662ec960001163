"""A message's payload, in any of the forms people send -> one normalized TrainingRequest. Pure.

Forms: the short form ``{"recipe": …}`` (also as attributes of an empty message), the codelabs' ``worker_pool_specs``
list, a ``job_spec``, a whole CustomJob, a CreateCustomJob request, a ``gcloud`` config document, and
``--worker-pool-spec`` strings or a whole gcloud command line. ``docs/requests.md`` lists real ones and their outcomes.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from kickoff.errors import Fault, Forbidden, InvalidRequest
from kickoff.faults import bounded, fault, nearest, shown
from kickoff.labels import label_faults
from kickoff.overrides import Overrides, build_job, forbidden_overrides, parse_overrides
from kickoff.raw_forms import FORMS, RawRequest, find_form
from kickoff.raw_request import read_raw
from kickoff.recipe_models import Recipe, canonical_digest
from kickoff.recipes import Recipes
from kickoff.runs import CUSTOM
from kickoff.spec_values import strings

MAX_KEY = 256
MAX_BYTES = 256 * 1024
"""A run document holds the request and the job, and Firestore's limit is 1 MiB."""
MAX_VALUES = 5000
"""Objects, lists, texts and numbers."""
_TRANSPORT = ("ce-", "googclient_", "CloudPubSubDeadLetter")
_TRANSPORT_NAMES = frozenset({"content-type", "contentType"})
_ENVELOPE_ALIASES = {"idempotencyKey": "idempotency_key"}


class TrainingRequest(BaseModel):
    """What is asked for, apart from how it was spelled."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["recipe", "custom_job"]
    recipe: str
    """The recipe's name, or ``custom-job``."""
    form: str
    """How it was written, for people: see FORMS."""
    overrides: dict[str, Any] = {}
    dataset: str = ""
    """The dataset that the request names, else the recipe's own; empty: what was uploaded, or what is watched."""
    custom_job: dict[str, Any] = {}
    """REST JSON of a raw request."""
    labels: dict[str, str] = {}
    idempotency_key: str = ""
    region: str = ""
    """Where the sender wants it; empty: the deployment's own."""
    project: str = ""
    camel: bool = False
    """Whether the sender wrote camelCase; faults name fields in the same spelling."""
    warnings: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of the content, hex: two spellings of one request have one digest."""
        spelling = {"form", "idempotency_key", "camel", "warnings"}
        return canonical_digest(self.model_dump(mode="json", exclude=spelling))


def build_request(recipe: Recipe, overrides: Overrides | None = None) -> TrainingRequest:
    """The request of an upload or a tick: the recipe as it stands. Raises InvalidRequest."""
    faults: list[Fault] = []
    found = parse_overrides(overrides or {}, faults)
    if faults:
        raise InvalidRequest.from_faults(bounded(faults))
    dataset = build_job(recipe, found).dataset or ""
    return TrainingRequest(kind="recipe", recipe=recipe.name, form="recipe", overrides=found, dataset=dataset)


def parse_request(payload: object, recipes: Recipes, attributes: Mapping[str, str] | None = None) -> TrainingRequest:
    """Read a message. Raises InvalidRequest, or Forbidden when only the recipe's `allow` stands against it.

    `payload` is the decoded JSON of the message's data, None when it has none; `attributes` are the message's own.
    """
    given = _request_attributes(attributes or {})
    form = ""
    if payload is None or payload == "" or payload == {}:
        payload, form = given, "attributes"
    if isinstance(payload, list):
        payload = _wrapped(payload)
    if not isinstance(payload, Mapping):
        raise InvalidRequest.from_faults([fault((), f"the message is {shown(payload)}; it must be a JSON object")])
    if problem := _unsendable(payload):
        raise InvalidRequest.from_faults([fault((), f"the message is {shown(payload)}; {problem}")])
    values = {_ENVELOPE_ALIASES.get(str(key), str(key)): item for key, item in payload.items()}
    faults: list[Fault] = []
    key = _idempotency_key(values.pop("idempotency_key", None), given.get("idempotency_key", ""), faults)
    found = find_form(values, faults)
    if found == "recipe":
        return _short_form(values, recipes, key, form or FORMS["recipe"], faults)
    raw = read_raw(found, values, faults) if found else RawRequest()
    if faults:
        raise InvalidRequest.from_faults(bounded(faults))
    return TrainingRequest(
        kind="custom_job",
        recipe=CUSTOM,
        form=FORMS[found],
        custom_job=raw.custom_job,
        labels=raw.custom_job.get("labels", {}),
        idempotency_key=key,
        region=raw.region,
        project=raw.project,
        camel=raw.camel,
        warnings=tuple(raw.warnings),
    )


def _unsendable(payload: object) -> str:
    """What can be read from JSON and not be stored or sent again, or costs too much to judge."""
    try:
        size = len(json.dumps(payload, ensure_ascii=False, allow_nan=False).encode())
        if size > MAX_BYTES:
            return f"it has {size} bytes, and at most {MAX_BYTES} are possible"
        if (count := _count(payload)) > MAX_VALUES:
            return f"it has {count} values, and at most {MAX_VALUES} are possible"
        if any("\0" in text for _, text in strings(payload)):
            return "it must be text without NUL, which no argument or variable can hold"
    except UnicodeEncodeError:
        return "it must be text in UTF-8, without lone surrogates"
    except (TypeError, ValueError):
        return "it must be plain JSON, without NaN and Infinity"
    except RecursionError:
        return "it nests too deeply"
    return ""


def _count(value: object) -> int:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return 1 + sum(map(_count, inner))


def _request_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    """The sender's own attributes, less those that transports add."""
    return {
        _ENVELOPE_ALIASES.get(name, name): value
        for name, value in attributes.items()
        if not name.startswith(_TRANSPORT) and name not in _TRANSPORT_NAMES
    }


def _wrapped(payload: list[object]) -> object:
    """A bare list: a gcloud command line, its pool strings, or the codelabs' list."""
    if payload and all(isinstance(item, str) for item in payload):
        return {"argv" if payload[0] == "gcloud" else "worker_pool_spec": payload}
    return {"worker_pool_specs": payload}


def _idempotency_key(value: object, attribute: str, faults: list[Fault]) -> str:
    path = ("idempotency_key",)
    if value is None or value == attribute:
        value = attribute
    elif attribute:
        faults.append(fault(path, f"is {shown(value)} in the data and {shown(attribute)} in the attributes"))
    if not isinstance(value, str) or len(value) > MAX_KEY:
        faults.append(fault(path, f"is {shown(value)}; it must be a string of at most {MAX_KEY} characters"))
        return ""
    return value


def _short_form(values: dict[str, Any], recipes: Recipes, key: str, form: str, faults: list[Fault]) -> TrainingRequest:
    name, labels = values.pop("recipe"), values.pop("labels", None) or {}
    labels = _with_dotted(labels, values)
    region, project = (_text(values, each, faults) for each in ("region", "project"))
    recipe = _recipe(name, recipes, faults)
    if isinstance(labels, Mapping):
        faults += label_faults(labels)
    else:
        faults.append(fault(("labels",), f"is {shown(labels)}; it must be an object of strings"))
    overrides = parse_overrides(values, faults)
    forbidden: list[Fault] = []
    if recipe:
        named = {each.path for each in faults}
        faults += [each for each in _job_faults(recipe, overrides) if each.path not in named]
        forbidden = list(forbidden_overrides(recipe, overrides))
        if recipe.when.message is None:
            forbidden.append(fault(("recipe",), f"is {recipe.name!r}, which takes no messages: its when: names none"))
    if faults:
        raise InvalidRequest.from_faults(bounded([*faults, *forbidden]))
    if forbidden:
        raise Forbidden.from_faults(bounded(forbidden))
    return TrainingRequest(
        kind="recipe",
        recipe=str(name),
        form=form,
        overrides=overrides,
        dataset=str(overrides.get("dataset") or (recipe and recipe.job.dataset) or ""),
        labels=dict(labels),
        idempotency_key=key,
        region=region,
        project=project,
    )


def _with_dotted(labels: Any, values: dict[str, Any]) -> Any:
    """Attributes are flat: there a label is written ``labels.team``."""
    names = [key for key in values if key.startswith("labels.")]
    found = {name.removeprefix("labels."): values.pop(name) for name in names}
    return {**labels, **found} if isinstance(labels, Mapping) else labels


def _recipe(name: object, recipes: Recipes, faults: list[Fault]) -> Recipe | None:
    recipe = recipes.get(name) if isinstance(name, str) else None
    if not recipe:
        known = sorted(recipes.by_name)
        faults.append(
            fault(("recipe",), f"is {shown(name)}; known are {', '.join(known) or 'none'}{nearest(name, known)}")
        )
    return recipe


def _job_faults(recipe: Recipe, overrides: Overrides) -> tuple[Fault, ...]:
    try:
        build_job(recipe, overrides)
    except InvalidRequest as error:
        return error.faults
    return ()


def _text(values: dict[str, Any], name: str, faults: list[Fault]) -> str:
    value = values.pop(name, "")
    if isinstance(value, str):
        return value
    faults.append(fault((name,), f"is {shown(value)}; it must be a string"))
    return ""
