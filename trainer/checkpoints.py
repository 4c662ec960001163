"""Checkpoints: one file each, written off the training thread, few, and none trusted unread.

A checkpoint is an .npz of every variable of model and optimizer, and a JSON header that says where in the data
training was. One file is atomic on a disk (rename) and in Cloud Storage (one upload); its CRCs are checked when it
is read. Only the primary reads and writes; the others get the values over the collective (see loop.py), so no
directory need be shared and no two replicas can disagree about which checkpoint is the newest.
"""

import io
import json
import re
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer import storage
from trainer.errors import StorageFailed, TrainerError
from trainer.schedule import Position

# RuntimeError: what zipfile says when a bit of its headers is wrong ("encrypted", "compression not supported").
_BROKEN = (zipfile.BadZipFile, zlib.error, LookupError, TypeError, AttributeError, RuntimeError, EOFError, OSError)
_PATTERN = re.compile(r"checkpoint-(\d{12})\.npz$")


@dataclass(frozen=True)
class Best:
    """The epoch (1-based) with the lowest val_loss so far, and the step at its end."""

    epoch: int
    step: int
    loss: float


@dataclass(frozen=True)
class State:
    """What training needs to go on: variables in order, the position, and the running sums of the epoch."""

    step: int
    position: Position
    values: Sequence[npt.NDArray[Any]]
    sums: Sequence[float] = ()
    history: Sequence[Mapping[str, float]] = ()
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    best: Best | None = None


def encode(state: State) -> bytes:
    header = {
        "arrays": len(state.values),
        "schema": "kickoff.checkpoint.v1",
        "step": state.step,
        "position": asdict(state.position),
        "sums": list(state.sums),
        "history": list(state.history),
        "fingerprint": dict(state.fingerprint),
        "best": asdict(state.best) if state.best else None,
    }
    arrays: dict[str, Any] = {_array(index): value for index, value in enumerate(state.values)}
    out = io.BytesIO()
    np.savez(out, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    return out.getvalue()


def decode(content: bytes) -> State:
    """Raises ValueError for anything that is not a whole checkpoint."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            header = json.loads(archive["header"].tobytes())
            count = header.get("arrays", len(archive.files) - 1)
            values = [archive[_array(index)] for index in range(count)]
        if not all(isinstance(value, np.ndarray) for value in values):
            raise ValueError("not a whole checkpoint: something in it is no array")
        return State(
            header["step"],
            Position(**header["position"]),
            values,
            header["sums"],
            header["history"],
            header["fingerprint"],
            Best(**header["best"]) if header.get("best") else None,
        )
    except _BROKEN as error:
        raise ValueError(f"not a whole checkpoint: {error}") from error


def load_newest(directory: str, report: Callable[[str], None] = print) -> State | None:
    """The newest readable checkpoint; a broken one is named and the one before it is taken."""
    for file in reversed(_list(directory)):
        try:
            return decode(storage.read(file.uri))
        except (ValueError, FileNotFoundError) as error:
            report(f"checkpoint {file.uri} is unusable ({error}); trying the one before")
    return None


def load_step(directory: str, step: int, report: Callable[[str], None] = print) -> State | None:
    """The checkpoint of one step; None, and said why, where it cannot be read."""
    uri = storage.join(directory, _name(step))
    try:
        return decode(storage.read(uri))
    except (ValueError, FileNotFoundError) as error:
        report(f"warning: checkpoint {uri} is unusable ({error})")
        return None


def _array(index: int) -> str:
    return f"v{index:05d}"


def _name(step: int) -> str:
    return f"checkpoint-{step:012d}.npz"


def _list(directory: str) -> list[storage.StoredFile]:
    try:
        return [file for file in storage.list_files(directory) if _PATTERN.fullmatch(file.name)]
    except FileNotFoundError:
        return []


class Writer:
    """Writes on a thread of its own, keeps the newest `keep`, and never lets two writes overlap.

    A failed write is said once and training goes on, unless nothing could be written `tolerance` times in a row:
    then the next `write` raises, because a run that cannot save is not worth its price.
    """

    def __init__(self, directory: str, keep: int, report: Callable[[str], None] = print, tolerance: int = 3) -> None:
        self._directory, self._keep, self._report, self._tolerance = directory, keep, report, tolerance
        self._thread: threading.Thread | None = None
        self._last = time.monotonic()
        self.kept_step = -1
        """The step whose checkpoint stays, however old it is."""
        self.last_step = 0
        """The step of the last write that was started."""
        self._failures = 0
        self._error: TrainerError | None = None

    def is_due(self, step: int, every_steps: int, every_minutes: float) -> bool:
        """True when a write is due at `step`; one still under way puts the next one off, it does not cancel it."""
        by_step = every_steps and step - self.last_step >= every_steps
        by_time = time.monotonic() - self._last > every_minutes * 60
        return bool(by_step or by_time) and not self.busy

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def write(self, state: State, *, wait: bool = False) -> bool:
        """Starts a write; False when the one before is still under way and `wait` is not set."""
        if self.busy and not wait:
            return False
        self.flush()
        if self._failures >= self._tolerance and self._error is not None:
            raise self._error
        self._last, self.last_step = time.monotonic(), state.step
        self._thread = threading.Thread(target=self._write, args=(state,), name="checkpoint", daemon=True)
        self._thread.start()
        if wait:
            self.flush()
        return True

    def flush(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _write(self, state: State) -> None:
        try:
            storage.write(storage.join(self._directory, _name(state.step)), encode(state))
            for old in _list(self._directory)[: -self._keep]:
                if old.name != _name(self.kept_step):
                    storage.delete(old.uri)
            self._failures = 0
        except (TrainerError, FileNotFoundError) as error:
            self._failures += 1
            self._error = error if isinstance(error, TrainerError) else StorageFailed(str(error))
            self._report(f"warning: no checkpoint at step {state.step}: {error}")
