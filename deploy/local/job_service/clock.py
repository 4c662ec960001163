"""The emulator's time, which can run fast and can be put forward, so that a day's wait takes a moment."""

import threading
import time
from datetime import UTC, datetime

MAX_SPEED = 100_000.0
MAX_ADVANCE = 366 * 86_400.0


class Clock:
    """Seconds since the epoch, `speed` times as fast as the wall's from the moment of its making."""

    def __init__(self, speed: float = 1.0) -> None:
        self._lock = threading.Lock()
        self._speed = speed
        self._base = time.time()
        self._since = time.monotonic()

    def now(self) -> float:
        with self._lock:
            return self._base + (time.monotonic() - self._since) * self._speed

    def advance(self, seconds: float) -> None:
        """Put the clock forward."""
        with self._lock:
            self._base += seconds

    def set_speed(self, speed: float) -> None:
        now = self.now()
        with self._lock:
            self._base, self._since, self._speed = now, time.monotonic(), speed

    def real_seconds(self, seconds: float) -> float:
        """How long `seconds` of this clock take on the wall's."""
        with self._lock:
            return max(0.0, seconds) / self._speed


def timestamp(seconds: float) -> str:
    """RFC 3339 in UTC with microseconds, as the service writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
