"""Vertex AI's JobService over REST: create, find by label, get, cancel. The only module that talks to it.

https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.customJobs
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol

from kickoff.errors import JobRejected, QuotaExceeded, VertexUnavailable
from kickoff.jobs import ENDED, NONCE_LABEL, RUN_LABEL, JobView, state_name
from kickoff.points import around
from kickoff.settings import Settings

_UNCERTAIN = frozenset({408, 499})
"""4xx answers after which the job may exist all the same: time-out, and closed by the client."""
_READ_TIMEOUT = 30.0


class JobService(Protocol):
    """What the outbox and the sweep need of Vertex AI."""

    def create(self, project: str, region: str, custom_job: Mapping[str, Any], nonce: str) -> JobView: ...

    def get(self, name: str) -> JobView | None: ...

    def find_by_run(self, project: str, region: str, run_id: str) -> list[JobView]: ...

    def list_active(self, project: str, region: str) -> list[JobView]: ...

    def cancel(self, name: str) -> None: ...


class Vertex:
    """Clients are made at the first call, one for each region's endpoint."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clients: dict[str, Any] = {}
        self._making = threading.Lock()

    def create(self, project: str, region: str, custom_job: Mapping[str, Any], nonce: str) -> JobView:
        """Create the job, labelled with `nonce`, by one POST that nothing repeats.

        Raises JobRejected or QuotaExceeded where Vertex certainly made none, VertexUnavailable where it may have.
        """
        from google.cloud.aiplatform_v1.types import CustomJob
        from google.protobuf import json_format

        job = CustomJob()
        try:
            labels = {**custom_job.get("labels", {}), NONCE_LABEL: nonce}
            json_format.ParseDict({**custom_job, "labels": labels}, CustomJob.pb(job))
        except (json_format.ParseError, AttributeError, TypeError, ValueError) as error:
            raise JobRejected(f"the CustomJob is not valid: {error}") from error
        client, timeout = self._client(region), self._settings.create_timeout
        with around("vertex.create"), _classified():
            made = client.create_custom_job(
                parent=f"projects/{project}/locations/{region}", custom_job=job, retry=None, timeout=timeout
            )
        if not made.name:
            raise VertexUnavailable("Vertex AI answered without the job's name")
        return _view(made)

    def get(self, name: str) -> JobView | None:
        """The job as it is now, or None where there is none of that name."""
        from google.api_core.exceptions import NotFound

        with _classified():
            try:
                return _view(self._client(_region(name)).get_custom_job(name=name, timeout=_READ_TIMEOUT))
            except NotFound:
                return None

    def find_by_run(self, project: str, region: str, run_id: str) -> list[JobView]:
        """Every job labelled with that run, oldest first."""
        found = self._list(project, region, f'labels.{RUN_LABEL}="{run_id}"')
        return sorted((job for job in found if job.labels.get(RUN_LABEL) == run_id), key=_age)

    def list_active(self, project: str, region: str) -> list[JobView]:
        """Every job with a run's label that has not ended, oldest first."""
        going = " AND ".join(f'state!="{state}"' for state in sorted(ENDED))
        found = self._list(project, region, f"labels.{RUN_LABEL}:* AND {going}")
        return sorted((job for job in found if not job.ended and RUN_LABEL in job.labels), key=_age)

    def cancel(self, name: str) -> None:
        """Ask for the job's end. A job that has ended already, or is gone, is no error."""
        from google.api_core.exceptions import BadRequest, NotFound

        with around("vertex.cancel"), _classified():
            try:
                self._client(_region(name)).cancel_custom_job(name=name, timeout=_READ_TIMEOUT)
            except (BadRequest, NotFound):  # FAILED_PRECONDITION is a 400
                return

    def _list(self, project: str, region: str, query: str) -> list[JobView]:
        request = {"parent": f"projects/{project}/locations/{region}", "filter": query, "page_size": 100}
        with _classified():
            return [_view(job) for job in self._client(region).list_custom_jobs(request=request, timeout=_READ_TIMEOUT)]

    def _client(self, region: str) -> Any:
        from google.auth.credentials import AnonymousCredentials
        from google.cloud.aiplatform_v1.services.job_service import JobServiceClient

        endpoint = self._settings.vertex_endpoint
        if endpoint.startswith("https://"):
            endpoint = endpoint.replace(f"//{self._settings.region}-", f"//{region}-", 1)
        with self._making:
            if endpoint not in self._clients:
                credentials = AnonymousCredentials() if endpoint.startswith("http://") else None
                options = {"api_endpoint": endpoint}
                client = JobServiceClient(transport="rest", client_options=options, credentials=credentials)
                self._clients[endpoint] = client
            return self._clients[endpoint]


@contextmanager
def _classified() -> Iterator[None]:
    """What an answer says about whether the call took effect."""
    from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError
    from google.auth.exceptions import GoogleAuthError
    from google.protobuf.json_format import ParseError
    from requests.exceptions import RequestException

    try:
        yield
    except GoogleAPICallError as error:
        code, status, words = int(error.code or 500), *_words(error)
        if code == 429 or error.reason == "RATE_LIMIT_EXCEEDED":
            raise QuotaExceeded(words) from error
        if 400 <= code < 500 and code not in _UNCERTAIN and status != "ABORTED":
            raise JobRejected(words, code) from error
        raise VertexUnavailable(f"Vertex AI answered {code}: {words}") from error
    except (GoogleAPIError, GoogleAuthError, RequestException, ParseError, UnicodeDecodeError) as error:
        raise VertexUnavailable(f"Vertex AI did not answer: {error}") from error


def _words(error: Any) -> tuple[str, str]:
    """The google.rpc.Code's name and Vertex's own words; the exception's text begins with the URL."""
    try:
        body = error.response.json()["error"]
        return str(body.get("status", "")), str(body["message"])
    except (AttributeError, KeyError, TypeError, ValueError):  # not Google's error JSON: a proxy's page
        return "", str(error.message or f"HTTP {error.code}")


def _view(job: Any) -> JobView:
    """A CustomJob message as plain data."""
    return JobView(
        name=job.name,
        state=state_name(int(job.state)),
        display_name=job.display_name,
        create_time=_time(job.create_time),
        start_time=_time(job.start_time),
        end_time=_time(job.end_time),
        update_time=_time(job.update_time),
        error=job.error.message if job.error else "",
        error_code=job.error.code if job.error else 0,
        labels=dict(job.labels),
    )


def _time(value: Any) -> datetime | None:
    """A plain datetime: the client's own subclass with nanoseconds does not survive a copy through JSON."""
    return datetime.combine(value.date(), value.timetz()) if value else None


def _age(job: JobView) -> tuple[str, str]:
    return (job.create_time.isoformat() if job.create_time else "", job.id)


def _region(name: str) -> str:
    """Of ``projects/P/locations/R/customJobs/ID``."""
    return name.split("/")[3]
