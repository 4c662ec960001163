"""trainingPipelines of the custom training task: what CustomContainerTrainingJob and its kin of the SDK create.

A pipeline runs a CustomJob and, where it is asked to, ends with a Model resource.
https://cloud.google.com/vertex-ai/docs/training/create-training-pipeline
"""

import json
import threading
from collections.abc import Mapping
from typing import Any

from deploy.local.job_service.clock import timestamp
from deploy.local.job_service.custom_jobs import (
    CustomJobs,
    Projects,
    check_region,
    done_operation,
    find,
    list_page,
    new_id,
)
from deploy.local.job_service.errors import Violation, failed_precondition, invalid_argument, invalid_payload
from deploy.local.job_service.execution import CUSTOM_JOBS
from deploy.local.job_service.parsing import parse_message
from deploy.local.job_service.schema import camel
from deploy.local.job_service.services import Services

Json = dict[str, Any]
PIPELINES = "trainingPipelines"
MODELS = "models"
_DEFINITION = "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml"
_FIELDS = (
    "display_name", "input_data_config", "training_task_definition", "training_task_inputs", "model_to_upload",
    "model_id", "parent_model", "labels", "encryption_spec",
)  # fmt: skip
_OUTPUT_ONLY = (
    "name", "training_task_metadata", "state", "error", "create_time", "start_time", "end_time", "update_time",
)  # fmt: skip
_SUCCEEDED = "PIPELINE_STATE_SUCCEEDED"
TERMINAL = frozenset({_SUCCEEDED, "PIPELINE_STATE_FAILED", "PIPELINE_STATE_CANCELLED"})


class Pipelines:
    """Create, get, list, cancel and delete; and the models that pipelines make."""

    def __init__(self, services: Services, jobs: CustomJobs, projects: Projects) -> None:
        self._services = services
        self._jobs = jobs
        self._projects = projects
        self._lock = threading.Lock()

    def create(self, project: str, region: str, body: object) -> Json:
        """Raises ApiError: 400, 403, 429."""
        check_region(region)
        pipeline = _parse_pipeline(body)
        spec, violations = parse_message(
            _plain(pipeline["trainingTaskInputs"]), "CustomJobSpec", "training_task_inputs"
        )
        if violations:
            raise invalid_payload(violations)
        job = {"displayName": f"{pipeline['displayName'][:117]}-custom-job", "jobSpec": spec}
        job |= {"labels": pipeline["labels"]} if pipeline.get("labels") else {}
        backing = self._jobs.create_parsed(project, region, job)
        now = timestamp(self._services.clock.now())
        name = f"projects/{self._projects.in_names(project)}/locations/{region}/{PIPELINES}/{new_id()}"
        whole = {"name": name, **pipeline, "trainingTaskMetadata": {"backingCustomJob": backing["name"]}}
        whole |= {"state": "PIPELINE_STATE_PENDING", "createTime": now, "updateTime": now}
        self._services.store.add(PIPELINES, project, region, whole)
        return whole

    def get(self, project: str, region: str, pipeline_id: str) -> Json:
        return self._refresh(find(self._services.store, PIPELINES, project, region, pipeline_id))

    def list_page(self, project: str, region: str, query: Mapping[str, str]) -> Json:
        for pipeline in self._services.store.unfinished(PIPELINES):
            self._refresh(pipeline)
        return list_page(self._services.store, PIPELINES, project, region, query)

    def cancel(self, project: str, region: str, pipeline_id: str) -> Json:
        pipeline = self.get(project, region, pipeline_id)
        return self._jobs.cancel(project, region, _backing_id(pipeline))

    def delete(self, project: str, region: str, pipeline_id: str) -> Json:
        pipeline = self.get(project, region, pipeline_id)
        if pipeline["state"] not in TERMINAL:
            raise failed_precondition(f"TrainingPipeline {pipeline['name']} is in state {pipeline['state']}.")
        self._services.store.delete(pipeline_id)
        return done_operation(self._projects.in_names(project), region)

    def get_model(self, project: str, region: str, model_id: str) -> Json:
        """``models/ID`` or ``models/ID@VERSION``."""
        return find(self._services.store, MODELS, project, region, model_id.partition("@")[0])

    def job_ended(self, job_id: str) -> None:
        """Bring the pipeline of this job up to date before anybody can delete the job."""
        for pipeline in self._services.store.unfinished(PIPELINES):
            if _backing_id(pipeline) == job_id:
                self._refresh(pipeline)

    def _refresh(self, pipeline: Json) -> Json:
        """The pipeline as its job has it now; the model is made once, when the job has succeeded."""
        job = self._services.store.get(CUSTOM_JOBS, _backing_id(pipeline))
        if pipeline["state"] in TERMINAL or job is None:
            return pipeline
        state = job["state"].replace("JOB_STATE_", "PIPELINE_STATE_").replace("EXPIRED", "FAILED")
        times: Json = {key: job[key] for key in ("startTime", "endTime", "updateTime", "error") if key in job}
        with self._lock:
            current = self._services.store.get(PIPELINES, pipeline["name"].rpartition("/")[2])
            if current is None or current["state"] in TERMINAL:
                return current or pipeline
            current |= {"state": state, **times}
            if state == _SUCCEEDED and current.get("modelToUpload"):
                current["modelToUpload"] = self._upload(current, job)
            self._services.store.update(current)
            return current

    def _upload(self, pipeline: Json, job: Json) -> Json:
        project, region = self._services.store.place(pipeline["name"].rpartition("/")[2])
        name = f"projects/{self._projects.in_names(project)}/locations/{region}/{MODELS}/{new_id()}"
        base = job["jobSpec"].get("baseOutputDirectory", {}).get("outputUriPrefix", "").rstrip("/")
        now = timestamp(self._services.clock.now())
        model: Json = {
            **pipeline["modelToUpload"],
            "name": name,
            "versionId": "1",
            "trainingPipeline": pipeline["name"],
        }
        model |= {"createTime": now, "updateTime": now}
        model |= {"artifactUri": f"{base}/model"} if base else {}
        self._services.store.add(MODELS, project, region, model)
        return model


def _parse_pipeline(body: object) -> Json:
    """The fields of a pipeline in camelCase. Raises ApiError (400) for unknown ones and missing ones."""
    if not isinstance(body, dict):
        raise invalid_payload([Violation("training_pipeline", "training_pipeline must be an object.")])
    by_key = {key: camel(name) for name in (*_FIELDS, *_OUTPUT_ONLY) for key in (name, camel(name))}
    unknown = [json.dumps(key) for key in sorted(set(body) - set(by_key))]
    if unknown:
        words = "Invalid JSON payload received. Unknown name {} at 'training_pipeline': Cannot find field."
        raise invalid_payload([Violation("training_pipeline", words.format(name)) for name in unknown])
    wanted = {camel(name) for name in _FIELDS}
    pipeline = {by_key[key]: value for key, value in body.items() if by_key[key] in wanted and value is not None}
    violations = []
    if not isinstance(pipeline.get("displayName"), str) or not 1 <= len(pipeline["displayName"]) <= 128:
        violations.append(Violation("display_name", "Display name must have from 1 to 128 characters."))
    if pipeline.get("trainingTaskDefinition") != _DEFINITION:
        violations.append(Violation("training_task_definition", f"The emulator runs {_DEFINITION} alone."))
    if not isinstance(pipeline.get("trainingTaskInputs"), dict):
        violations.append(Violation("training_task_inputs", "Training task inputs are required, as an object."))
    if not isinstance(pipeline.get("modelToUpload", {}), dict):
        violations.append(Violation("model_to_upload", "The model to upload must be an object."))
    if violations:
        raise invalid_argument(violations)
    return pipeline


def _plain(inputs: Json) -> Json:
    """The inputs with numbers in `args` as text: the SDK's `run` takes numbers there and sends them as JSON numbers."""
    pools = inputs.get("worker_pool_specs", inputs.get("workerPoolSpecs"))
    for pool in pools if isinstance(pools, list) else []:
        for task in pool.values() if isinstance(pool, dict) else []:
            if isinstance(task, dict) and isinstance(task.get("args"), list):
                task["args"] = [_text(word) for word in task["args"]]
    return inputs


def _text(word: object) -> object:
    if isinstance(word, bool) or not isinstance(word, int | float):
        return word
    return str(int(word)) if float(word).is_integer() else str(word)


def _backing_id(pipeline: Json) -> str:
    return str(pipeline["trainingTaskMetadata"]["backingCustomJob"]).rpartition("/")[2]
