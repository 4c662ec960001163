"""Brings objects from Cloud Storage to the local disk: in parallel, by generation, verified."""

import base64
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from trainer.errors import InvalidData
from trainer.storage import StoredFile, explained, is_gs, read

_REPORT_SECONDS = 5.0


def fetch(files: Sequence[StoredFile], directory: Path, report: Callable[[str], None] = print) -> list[Path]:
    """Local paths of the files, in their order: gs:// ones downloaded into `directory`, local ones as they are.

    A size or crc32c that differs from what the listing or snapshot says is InvalidData naming the object.
    """
    remote = [index for index, file in enumerate(files) if is_gs(file.uri)]
    paths = [directory / str(index) if is_gs(file.uri) else Path(file.uri) for index, file in enumerate(files)]
    if not remote:
        return paths
    directory.mkdir(parents=True, exist_ok=True)
    progress = _Progress(len(remote), sum(files[index].size for index in remote), report)

    def fetch_one(index: int) -> None:
        content = read(files[index].uri, files[index].generation)
        verify(files[index], content)
        with explained("cache", str(paths[index])):
            paths[index].write_bytes(content)
        progress.add(len(content))

    # Downloads wait on the network far more than on the processor; 16 at once fills a VM's link with small files.
    pool = ThreadPoolExecutor(min(16, 4 * (os.cpu_count() or 1)))
    try:
        done, _ = wait([pool.submit(fetch_one, index) for index in remote], return_when=FIRST_EXCEPTION)
        for download in done:
            download.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return paths


def verify(file: StoredFile, content: bytes) -> None:
    """Raises InvalidData when the bytes are not those that were listed."""
    if len(content) != file.size:
        raise InvalidData(f"{file.uri} has {len(content)} bytes; its listing says {file.size}")
    if file.crc32c:
        import google_crc32c

        found = base64.b64encode(google_crc32c.value(content).to_bytes(4, "big")).decode()
        if found != file.crc32c:
            raise InvalidData(f"{file.uri} has crc32c {found}; its listing says {file.crc32c}")


class _Progress:
    """One line every few seconds and one at the end, from any thread."""

    def __init__(self, count: int, size: int, report: Callable[[str], None]) -> None:
        self._count, self._size, self._report = count, size, report
        self._lock = threading.Lock()
        self._fetched = self._bytes = 0
        self._started = self._reported = time.monotonic()

    def add(self, size: int) -> None:
        with self._lock:
            self._fetched += 1
            self._bytes += size
            now = time.monotonic()
            if self._fetched == self._count or now - self._reported >= _REPORT_SECONDS:
                self._reported = now
                rate = self._bytes / 1e6 / max(now - self._started, 1e-9)
                self._report(
                    f"fetched {self._fetched}/{self._count} files, "
                    f"{self._bytes / 1e6:.1f}/{self._size / 1e6:.1f} MB, {rate:.1f} MB/s"
                )
