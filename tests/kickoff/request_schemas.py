"""JSON Schemas of recipes and messages, generated from the models; editors complete by them.

``python -m tests.kickoff.request_schemas`` (with functions/ on PYTHONPATH) writes docs/schemas/ anew.
"""

import json
from collections.abc import Mapping
from typing import Any

from kickoff.overrides import ALIASES
from kickoff.raw_forms import FORMS, GCLOUD_KEYS
from kickoff.recipe_models import Job, Recipe
from kickoff.spec_fields import ENUMS, MESSAGES, snake

from tests.kickoff.requests_at_hand import ROOT

Schema = dict[str, Any]

FOLDER = ROOT / "docs" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

_API = "aiplatform."
"""Before the names of the API's own messages: a recipe has a Scheduling, too."""

_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^-?[0-9]+$"}]}
_LABELS: Schema = {"type": "object", "additionalProperties": {"type": "string", "pattern": "^[a-z0-9_-]{0,63}$"}}
_SCALARS: Mapping[str, Schema] = {
    "string": _TEXT,
    "bool": {"type": "boolean"},
    "int32": _WHOLE,
    "int64": _WHOLE,
    "map": _LABELS,
    "duration": {
        "anyOf": [
            {"type": "string", "pattern": "^[0-9]+s$"},
            {"type": "integer", "minimum": 0},
            {"type": "object", "properties": {"seconds": _WHOLE}, "required": ["seconds"]},
        ]
    },
}
_ENVELOPE: Schema = {
    "idempotency_key": {
        "type": "string",
        "maxLength": 256,
        "description": "Two messages with one key are one request.",
    },
    "region": _TEXT,
    "project": _TEXT,
}


def recipe_schema() -> Schema:
    return {"$schema": DIALECT, **Recipe.model_json_schema(), "title": "Kickoff recipe"}


def message_schema() -> Schema:
    """One object of exactly one form."""
    job = Job.model_json_schema()
    definitions = {**job.pop("$defs"), **{_API + name: _message(fields) for name, fields in MESSAGES.items()}}
    return {
        "$schema": DIALECT,
        "title": "Kickoff training request",
        "description": "The data of a message on the topic training-requests.",
        "type": "object",
        "oneOf": [_short_form(job), *_raw_forms()],
        "$defs": definitions,
    }


def _message(fields: Mapping[str, str]) -> Schema:
    properties = {key: _field(kind) for name, kind in fields.items() for key in dict.fromkeys((name, snake(name)))}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _field(kind: str) -> Schema:
    if kind.endswith("[]"):
        return {"type": "array", "items": _field(kind[:-2])}
    if kind in MESSAGES:
        return {"$ref": f"#/$defs/{_API}{kind}"}
    if kind in ENUMS:
        return {"enum": [*ENUMS[kind], *ENUMS[kind].values()]}
    return _SCALARS[kind]


def _short_form(job: Schema) -> Schema:
    fields = {
        name: {key: item for key, item in field.items() if key != "default"}
        for name, field in job["properties"].items()
    }
    spelled = {alias: True for alias in ALIASES}
    return {
        "title": FORMS["recipe"],
        "type": "object",
        "required": ["recipe"],
        "properties": {
            "recipe": {"type": "string", "description": "The recipe's name."},
            **_ENVELOPE,
            **fields,
            **spelled,
        },
        "patternProperties": {r"^(args|env|labels|accelerator|scheduling|disk)\.": True},
        "additionalProperties": False,
    }


def _raw_forms() -> list[Schema]:
    job = _message(MESSAGES["CustomJob"])["properties"]
    spec = _message(MESSAGES["CustomJobSpec"])["properties"]
    beside = {key: field for key, field in job.items() if key not in ("jobSpec", "job_spec")}
    texts = {"type": "array", "items": _TEXT}
    flags = {
        name: texts if name in ("args", "command", "python_package_uris") else True for name in sorted(GCLOUD_KEYS)
    }
    return [
        _form("worker_pool_specs", {**beside, **spec, "base_output_dir": _TEXT}, "workerPoolSpecs"),
        _form("job_spec", job, "jobSpec"),
        _form("custom_job", {"custom_job": {"$ref": f"#/$defs/{_API}CustomJob"}, "parent": _TEXT}),
        _form("gcloud_config", {"gcloud_config": {"type": ["object", "string"]}, "argv": texts}),
        _form("worker_pool_spec", {"worker_pool_spec": {"anyOf": [_TEXT, texts]}, "labels": _LABELS, **flags}),
        _form("argv", {"argv": texts}),
    ]


def _form(key: str, properties: Schema, other: str = "") -> Schema:
    required: Schema = {"required": [key]}
    if other:
        required = {"anyOf": [required, {"required": [other]}]}
    whole = {
        "title": FORMS[key],
        "type": "object",
        "properties": {**_ENVELOPE, **properties},
        "additionalProperties": False,
    }
    return {**whole, **required}


SCHEMAS = {"recipe.json": recipe_schema, "message.json": message_schema}


def text_of(schema: Schema) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, build in SCHEMAS.items():
        (FOLDER / name).write_text(text_of(build()))
