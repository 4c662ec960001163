"""Reads and writes files on a local path or under gs://, and says in one line what went wrong.

TensorFlow's own gs:// filesystem cannot be pointed at an emulator and is slow with many small files, so
everything goes through google-cloud-storage (which honours STORAGE_EMULATOR_HOST).
"""

import contextlib
import errno
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from trainer.errors import AccessDenied, InvalidData, StorageFailed


@dataclass(frozen=True, order=True)
class StoredFile:
    """One file: `name` is relative to the listed root, `uri` whole; crc32c (base64) only where the store knows it."""

    name: str
    uri: str
    size: int
    generation: int | None = None
    crc32c: str | None = None


def is_gs(uri: str) -> bool:
    return uri.startswith("gs://")


def join(directory: str, name: str) -> str:
    return f"{directory.rstrip('/')}/{name}"


def split_gs(uri: str) -> tuple[str, str]:
    """("bucket", "object name") of a gs:// URI."""
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    return bucket, name


@functools.cache
def client() -> Any:
    """One client a process; anonymous against an emulator, as the library decides from STORAGE_EMULATOR_HOST."""
    from google.cloud import storage

    return storage.Client(project=os.environ.get("CLOUD_ML_PROJECT_ID") or os.environ.get("GOOGLE_CLOUD_PROJECT"))


def blob(uri: str, generation: int | None = None) -> Any:
    bucket, name = split_gs(uri)
    return client().bucket(bucket).blob(name, generation=generation)


def new_blob(uri: str) -> Any:
    """An object to be written, marked with its run: what a run writes never becomes part of a dataset."""
    made = blob(uri)
    if run := os.environ.get("KICKOFF_RUN_ID"):
        made.metadata = {"kickoff-run": run}
    return made


def read(uri: str, generation: int | None = None) -> bytes:
    """The whole content; FileNotFoundError where there is none."""
    with explained("read", uri):
        if not is_gs(uri):
            return Path(uri).read_bytes()
        content: bytes = blob(uri, generation).download_as_bytes(raw_download=True, timeout=60)
        return content


def write(uri: str, content: bytes) -> None:
    """Writes whole or not at all: a reader never sees a part of it."""
    with explained("write", uri):
        if is_gs(uri):
            new_blob(uri).upload_from_string(content, content_type="application/octet-stream", timeout=120)
            return
        path = Path(uri)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def create(uri: str, content: bytes) -> bool:
    """Writes only if nothing is there; False if something is."""
    with explained("create", uri):
        if not is_gs(uri):
            Path(uri).parent.mkdir(parents=True, exist_ok=True)
            try:
                with Path(uri).open("xb") as file:
                    _fill_or_remove(file, content)
            except FileExistsError:
                return False
            return True
        from google.api_core.exceptions import PreconditionFailed

        try:
            new_blob(uri).upload_from_string(content, content_type="text/plain", if_generation_match=0, timeout=60)
        except PreconditionFailed:
            return False
        return True


def _fill_or_remove(file: IO[bytes], content: bytes) -> None:
    try:
        file.write(content)
        file.flush()
    except BaseException:
        Path(file.name).unlink()
        raise


def delete(uri: str) -> None:
    """Removes the file; nothing happens where there is none."""
    with explained("delete", uri):
        if is_gs(uri):
            from google.api_core.exceptions import NotFound

            with contextlib.suppress(NotFound):
                blob(uri).delete(timeout=60)
        else:
            Path(uri).unlink(missing_ok=True)


def list_files(root: str) -> list[StoredFile]:
    """Every file under `root`, sorted by name; folder placeholders are left out."""
    with explained("list", root):
        if is_gs(root):
            bucket, prefix = split_gs(root.rstrip("/") + "/")
            return sorted(
                StoredFile(
                    found.name.removeprefix(prefix),
                    f"gs://{bucket}/{found.name}",
                    int(found.size or 0),
                    int(found.generation),
                    found.crc32c,
                )
                for found in client().list_blobs(bucket, prefix=prefix, timeout=60)
                if not found.name.endswith("/")
            )
        top = Path(root)
        paths = (Path(folder) / file for folder, _, files in os.walk(top, followlinks=True) for file in files)
        return sorted(StoredFile(path.relative_to(top).as_posix(), str(path), path.stat().st_size) for path in paths)


def publish_directory(source: Path, target: str, last: str) -> None:
    """Copies a tree file by file, `last` at the very end: until it is there, nobody takes the copy for a whole one."""
    files = [path for path in sorted(source.rglob("*")) if path.is_file()]
    delete(join(target, last))
    for path in sorted(files, key=lambda path: path.relative_to(source).as_posix() == last):
        write(join(target, path.relative_to(source).as_posix()), path.read_bytes())


@contextlib.contextmanager
def explained(action: str, uri: str) -> Iterator[None]:
    """Turns the failures that operators meet into one line each; FileNotFoundError stays what it is."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _explain_os_error(action, uri, error) from error
    except Exception as error:
        if "No space left on device" in str(error):  # as TensorFlow and h5py say it
            raise StorageFailed(f"cannot {action} {uri}: the disk is full") from error
        if not type(error).__module__.startswith(("google.", "requests.", "urllib3.")):
            raise
        raise _explain_google_error(action, uri, error) from error


def _explain_os_error(action: str, uri: str, error: OSError) -> Exception:
    if type(error).__module__.startswith(("requests", "google")):  # requests' errors are OSErrors
        return _explain_google_error(action, uri, error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFailed(f"cannot {action} {uri}: the disk is full ({error.strerror})")
    if isinstance(error, PermissionError):
        return AccessDenied(f"cannot {action} {uri}: {error.strerror}")
    return StorageFailed(f"cannot {action} {uri}: {error}")


def _explain_google_error(action: str, uri: str, error: Exception) -> Exception:
    from google.api_core import exceptions

    words = str(error).splitlines()[0] if str(error) else type(error).__name__
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, exceptions.Forbidden | exceptions.Unauthorized) or status in (401, 403):
        return AccessDenied(f"cannot {action} {uri}: the service account is denied access ({words})")
    if isinstance(error, exceptions.NotFound) or status == 404:
        return FileNotFoundError(f"{uri} does not exist ({words})")
    if "credentials" in type(error).__name__.lower():
        return AccessDenied(f"cannot {action} {uri}: no Google credentials here ({words})")
    if type(error).__name__ == "DataCorruption":
        return InvalidData(f"{uri} arrived with another checksum than it was stored with ({words})")
    return StorageFailed(f"cannot {action} {uri}: {words}")
