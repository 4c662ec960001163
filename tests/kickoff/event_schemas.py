"""The JSON Schemas in docs/schemas/ of what Kickoff records and publishes, made from the models.

``PYTHONPATH=functions python -m tests.kickoff.event_schemas`` writes them anew.
"""

import ast
import inspect
import json
import textwrap
from pathlib import Path
from typing import Any, Literal

from kickoff.own_events import EPOCH, FINISHED, RUN_FINISHED, RunFinished, TrainingEpoch, TrainingFinished
from kickoff.runs import Change, DatasetRecord, FaultRecord, JobRecord, ReplicaExit, Run, Trigger
from pydantic import BaseModel

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"
Mode = Literal["validation", "serialization"]
MODELS: dict[str, tuple[type[BaseModel], Mode, str]] = {
    "training-epoch": (TrainingEpoch, "validation", f"The data of {EPOCH}"),
    "training-finished": (TrainingFinished, "validation", f"The data of {FINISHED}"),
    "run-finished": (RunFinished, "serialization", f"The data of {RUN_FINISHED}"),
    "run": (Run, "serialization", "A run's record"),
}
_DESCRIBED = (TrainingEpoch, TrainingFinished, RunFinished)
_PARTS = (Run, Change, DatasetRecord, FaultRecord, JobRecord, ReplicaExit, Trigger)


def render(name: str) -> str:
    model, mode, title = MODELS[name]
    schema = model.model_json_schema(mode=mode)
    schema.get("properties", {}).pop("version", None)  # the ledger's own token is never stored
    if "required" in schema:
        schema["required"] = [key for key in schema["required"] if key != "version"]
    for part in (*_DESCRIBED, *_PARTS):
        _describe(schema if part is model else schema.get("$defs", {}).get(part.__name__, {}), part)
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": title}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Give each property the text that stands below it in the model."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            place = schema.get("properties", {}).get(field.target.id)
            if place is not None:
                place["description"] = " ".join(str(text.value.value).split())


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for each in MODELS:
        (FOLDER / f"{each}.json").write_text(render(each))
