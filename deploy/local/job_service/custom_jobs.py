"""The customJobs methods: what a request asks for, checked and done. No HTTP in here."""

import re
import secrets
import threading
import zlib
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

from deploy.local.job_service import states
from deploy.local.job_service.clock import timestamp
from deploy.local.job_service.errors import (
    ApiError,
    Violation,
    failed_precondition,
    invalid_argument,
    invalid_payload,
    not_found,
)
from deploy.local.job_service.execution import CUSTOM_JOBS
from deploy.local.job_service.filters import parse_filter, parse_order
from deploy.local.job_service.parsing import parse_message
from deploy.local.job_service.schema import OUTPUT_ONLY, camel
from deploy.local.job_service.services import Services
from deploy.local.job_service.store import Store
from deploy.local.job_service.supervisor import Supervisor
from deploy.local.job_service.validation import default_disk_type, find_violations

Json = dict[str, Any]
_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?|\d{1,19}")
_REGION = re.compile(r"[a-z]+(?:-[a-z0-9]+)*\d")
_PAGE_SIZE = 100
_MAX_PAGE_SIZE = 1000
_RATE = (
    "Quota exceeded for quota metric 'Custom training job submission requests' and limit 'Custom training job "
    "submission requests per minute per region' of service 'aiplatform.googleapis.com'."
)


class Projects:
    """Project ids and numbers: one project under two names. The number is made from the id."""

    def __init__(self, *, numeric: bool) -> None:
        self._numeric = numeric
        self._ids: dict[str, str] = {}

    def number(self, project: str) -> str:
        if project.isdigit():
            return project
        number = str(100_000_000_000 + zlib.crc32(project.encode()))
        self._ids[number] = project
        return number

    def known_as(self, name: str) -> str:
        """The id of a project named by id or number. Raises ApiError (403) for what cannot be a project."""
        if not _PROJECT.fullmatch(name):
            raise ApiError(403, f"Permission denied on resource project {name}. (CONSUMER_INVALID)")
        return self._ids.get(name, name)

    def in_names(self, project: str) -> str:
        """How answers name the project."""
        return self.number(project) if self._numeric else project


class CustomJobs:
    """Create, get, list, cancel and delete."""

    def __init__(self, services: Services, supervisor: Supervisor, projects: Projects) -> None:
        self._services = services
        self._supervisor = supervisor
        self._projects = projects
        self._submissions: dict[tuple[str, str], deque[float]] = defaultdict(deque)
        self._lock = threading.Lock()

    def create(self, project: str, region: str, body: object) -> Json:
        """Raises ApiError: 400, 403, 429."""
        check_region(region)
        job, violations = parse_message(body, "CustomJob", "custom_job")
        if violations:
            raise invalid_payload(violations)
        return self.create_parsed(project, region, job)

    def create_parsed(self, project: str, region: str, job: Json) -> Json:
        """The same for a job that fits the schema."""
        job = {key: value for key, value in job.items() if key not in {camel(name) for name in OUTPUT_ONLY}}
        violations = [*find_violations(job), *self._find_unusable_account(job)]
        if violations:
            raise invalid_argument(violations)
        self._check_bucket(job["jobSpec"], region)
        self._check_rate(project, region)
        now = timestamp(self._services.clock.now())
        name = f"projects/{self._projects.in_names(project)}/locations/{region}/{CUSTOM_JOBS}/{new_id()}"
        whole = {"name": name, **job, "state": states.QUEUED, "createTime": now, "updateTime": now}
        _fill_defaults(whole["jobSpec"])
        return self._supervisor.submit(whole, project, region)

    def get(self, project: str, region: str, job_id: str) -> Json:
        return find(self._services.store, CUSTOM_JOBS, project, region, job_id)

    def list_page(self, project: str, region: str, query: Mapping[str, str]) -> Json:
        hidden = self._services.faults.hidden(self._services.clock.now())
        return list_page(self._services.store, CUSTOM_JOBS, project, region, query, hidden)

    def cancel(self, project: str, region: str, job_id: str) -> Json:
        self.get(project, region, job_id)
        self._supervisor.cancel(job_id)
        return {}

    def delete(self, project: str, region: str, job_id: str) -> Json:
        """Raises ApiError (FAILED_PRECONDITION) while the job lives."""
        job = self.get(project, region, job_id)
        if job["state"] not in states.TERMINAL:
            raise failed_precondition(
                f"CustomJob {job['name']} is in state {job['state']}; only a job that has ended can be deleted."
            )
        self._services.store.delete(job_id)
        return done_operation(self._projects.in_names(project), region)

    def _find_unusable_account(self, job: Json) -> list[Violation]:
        account = job.get("jobSpec", {}).get("serviceAccount", "")
        if account not in self._services.options.unusable_service_accounts:
            return []
        words = f"You do not have permission to act as service_account: {account}. (or it may not exist)."
        return [Violation("job_spec.service_account", words, alone=True)]

    def _check_bucket(self, spec: Json, region: str) -> None:
        uri = spec.get("baseOutputDirectory", {}).get("outputUriPrefix", "")
        bucket = uri.removeprefix("gs://").partition("/")[0]
        location = self._services.options.bucket_locations.get(bucket, region).lower()
        if bucket and location != region:
            raise failed_precondition(
                f"The Cloud Storage bucket of `{uri}` is in location `{location}`. It must be in the same regional "
                f"location as the service location `{region}`."
            )

    def _check_rate(self, project: str, region: str) -> None:
        limit = self._services.options.submissions_per_minute
        if not limit:
            return
        now = self._services.clock.now()
        with self._lock:
            recent = self._submissions[project, region]
            while recent and recent[0] <= now - 60:
                recent.popleft()
            if len(recent) >= limit:
                raise ApiError(429, _RATE)
            recent.append(now)


def new_id() -> str:
    """A resource id as the service gives them: 19 digits."""
    return str(secrets.randbelow(9 * 10**18 - 10**18) + 10**18)


def check_region(region: str) -> None:
    if not _REGION.fullmatch(region):
        raise ApiError(400, f"Location {region!r} is not a region of Vertex AI.")


def find(store: Store, kind: str, project: str, region: str, resource_id: str) -> Json:
    """Raises ApiError (404)."""
    document = store.get(kind, resource_id, project, region)
    if document is None:
        singular = kind[0].upper() + kind[1:-1]
        raise not_found(f"The {singular} projects/{project}/locations/{region}/{kind}/{resource_id}"[:500])
    return document


def list_page(store: Store, kind: str, project: str, region: str, query: Mapping[str, str], hidden: Any = ()) -> Json:
    """One page of resources, newest first unless `orderBy` says otherwise."""
    size = _page_size(query.get("pageSize", ""))
    conditions = [parse_filter(query.get("filter", "")), *hidden]
    order = parse_order(query.get("orderBy", ""))
    page, token = store.list(kind, project, region, conditions, order, size, query.get("pageToken", ""))
    return {kind: page} | ({"nextPageToken": token} if token else {}) if page else {}


def done_operation(project: str, region: str) -> Json:
    """The operation of a deletion, which is over when it is answered."""
    name = f"projects/{project}/locations/{region}/operations/{new_id()}"
    meta = "type.googleapis.com/google.cloud.aiplatform.v1.DeleteOperationMetadata"
    return {
        "name": name,
        "metadata": {"@type": meta},
        "done": True,
        "response": {"@type": "type.googleapis.com/google.protobuf.Empty"},
    }


def _page_size(text: str) -> int:
    if not text:
        return _PAGE_SIZE
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise ApiError(400, f"Invalid value at 'page_size' (TYPE_INT32), \"{text[:50]}\"")
    return min(int(text), _MAX_PAGE_SIZE) or _PAGE_SIZE


def _fill_defaults(spec: Json) -> None:
    """https://cloud.google.com/vertex-ai/docs/reference/rest/v1/DiskSpec"""
    for pool in spec["workerPoolSpecs"]:
        if "machineSpec" in pool:
            kind = default_disk_type(pool["machineSpec"].get("machineType", ""))
            pool["diskSpec"] = {"bootDiskType": kind, "bootDiskSizeGb": 100} | pool.get("diskSpec", {})
