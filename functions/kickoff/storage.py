"""Cloud Storage, as far as Kickoff needs it: stat, list, read, create. Effect.

The official client, which honours ``STORAGE_EMULATOR_HOST``; imported and made on first use. Every failure that
may pass is raised as StorageUnavailable: time-outs, 5xx, and also 403 and a missing bucket, which an operator mends.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kickoff.datasets import MAX_MEMBERS, OWN, Listing, StoredObject
from kickoff.errors import StorageUnavailable

if TYPE_CHECKING:
    from google.cloud import storage

PAGE = 1000
"""Objects a page: what the service gives at most."""

PATIENCE = 30.0
"""Seconds that one call may spend on retries before StorageUnavailable."""

_FIELDS = "name,generation,crc32c,size,timeCreated,metadata"


class Storage:
    """Shared by threads: the client is, and the date of an answer is kept by thread."""

    def __init__(self, project: str) -> None:
        self._project = project
        self._making = threading.Lock()
        self._answer = threading.local()

    def stat(self, bucket: str, name: str) -> StoredObject | None:
        """The live generation, or None where there is none (or no such bucket)."""
        with _translated(f"gs://{bucket}/{name}"):
            blob = self._client.bucket(bucket).get_blob(name, retry=self._retry)
        return None if blob is None else _stored(blob)

    def pages(self, bucket: str, prefix: str, *, start: str = "") -> Iterator[tuple[datetime, list[StoredObject]]]:
        """Live objects below `prefix`, in order of name, from `start` on: each page with the date of its answer."""
        with _translated(f"gs://{bucket}/{prefix}"):
            found = self._client.list_blobs(
                bucket,
                prefix=prefix,
                start_offset=start or None,
                page_size=PAGE,
                fields=f"nextPageToken,items({_FIELDS})",
                retry=self._retry,
            )
            for page in found.pages:
                yield self._last_date(), [_stored(blob) for blob in page]

    def list(self, bucket: str, prefix: str) -> Listing:
        """All of it, but stop where it is too much for a dataset."""
        date: datetime | None = None
        objects: list[StoredObject] = []
        for answered, page in self.pages(bucket, prefix):
            date = date or answered
            objects += page
            if len(objects) > MAX_MEMBERS:
                break
        assert date is not None  # an empty prefix still has one page
        return Listing(date, objects)

    def read(self, bucket: str, name: str, generation: int) -> bytes | None:
        """One generation's bytes; None where it is no longer there."""
        from google.api_core.exceptions import NotFound

        blob = self._client.bucket(bucket).blob(name, generation=generation)
        try:
            with _translated(f"gs://{bucket}/{name}"):
                data: bytes = blob.download_as_bytes(retry=self._retry)
        except StorageUnavailable as error:
            if isinstance(error.__cause__, NotFound):
                return None
            raise
        return data

    def create(self, bucket: str, name: str, data: bytes, *, content_type: str, run: str) -> bool:
        """Write an object that must not be there yet, marked as the run's own. False: it is there.

        The client's own retry of a lost answer also gets "it is there": name objects by their content.
        """
        from google.api_core.exceptions import PreconditionFailed

        blob = self._client.bucket(bucket).blob(name)
        blob.metadata = {OWN: run}
        try:
            with _translated(f"gs://{bucket}/{name}"):
                blob.upload_from_string(data, content_type=content_type, if_generation_match=0, retry=self._retry)
        except StorageUnavailable as error:
            if isinstance(error.__cause__, PreconditionFailed):
                return False
            raise
        return True

    def exists_below(self, bucket: str, prefix: str) -> bool:
        """Whether any live object's name begins with `prefix`."""
        with _translated(f"gs://{bucket}/{prefix}"):
            found = self._client.list_blobs(bucket, prefix=prefix, max_results=1, fields="items(name)")
            return any(True for _ in found)

    @property
    def _client(self) -> "storage.Client":
        with self._making:
            return self._made

    @cached_property
    def _made(self) -> "storage.Client":
        from google.cloud import storage

        client = storage.Client(project=self._project)
        # The client drops an answer's headers; a hook of its session, run in the caller's thread, keeps the date.
        client._http.hooks["response"].append(self._note_date)
        return client

    def _last_date(self) -> datetime:
        """Of the last answer that this thread got."""
        date: datetime | None = getattr(self._answer, "date", None)
        if date is None:
            raise StorageUnavailable("the answer of Cloud Storage carries no Date, by which ages are judged")
        return date

    def _note_date(self, response: Any, *args: Any, **kwargs: Any) -> None:
        if "Date" in response.headers:
            self._answer.date = parsedate_to_datetime(response.headers["Date"])

    @cached_property
    def _retry(self) -> Any:
        from google.cloud.storage.retry import DEFAULT_RETRY

        return DEFAULT_RETRY.with_timeout(PATIENCE)


def split_uri(uri: str) -> tuple[str, str]:
    """``gs://bucket/a/b`` -> (``bucket``, ``a/b``)."""
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    return bucket, name


def _stored(blob: Any) -> StoredObject:
    return StoredObject(
        name=blob.name,
        generation=int(blob.generation),
        crc32c=blob.crc32c or "",
        size=int(blob.size or 0),
        created=blob.time_created,
        run=(blob.metadata or {}).get(OWN, ""),
    )


@contextmanager
def _translated(uri: str) -> Iterator[None]:
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError
    from requests import RequestException

    try:
        yield
    except (GoogleAPIError, GoogleAuthError, RequestException) as error:
        raise StorageUnavailable(f"{uri} could not be reached: {str(error)[:300]}") from error
