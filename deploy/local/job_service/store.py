"""Every resource that the emulator ever answered with, in one SQLite file.

A resource is its REST JSON; the columns beside it are what lists filter and order by. All changes of state
go through `move`, which holds them against the table of transitions.
"""

import base64
import json
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from deploy.local.job_service.errors import ApiError
from deploy.local.job_service.filters import Order, Where
from deploy.local.job_service.states import ENDED, TRANSITIONS

Json = dict[str, Any]

_TABLES = """
CREATE TABLE IF NOT EXISTS resources (
  id TEXT PRIMARY KEY, kind TEXT, project TEXT, region TEXT, display_name TEXT, state TEXT,
  create_time TEXT, update_time TEXT, labels TEXT, document TEXT
);
CREATE INDEX IF NOT EXISTS by_time ON resources (kind, project, region, create_time);
CREATE INDEX IF NOT EXISTS by_state ON resources (kind, state);
"""


class Store:
    """Thread-safe. A write is on disk before it returns, as one transaction."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._db = sqlite3.connect(folder / "jobs.db", check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.executescript(_TABLES)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def add(self, kind: str, project: str, region: str, document: Json) -> None:
        row = (_id(document), kind, project, region, *_columns(document))
        with self._lock:
            self._db.execute(f"INSERT INTO resources VALUES ({', '.join('?' * len(row))})", row)

    def get(self, kind: str, resource_id: str, project: str | None = None, region: str | None = None) -> Json | None:
        """The resource, if it is of this kind, project and region (None: any)."""
        sql = "SELECT document, project, region FROM resources WHERE id = ? AND kind = ?"
        with self._lock:
            row = self._db.execute(sql, (resource_id, kind)).fetchone()
        if row is None or project not in (None, row[1]) or region not in (None, row[2]):
            return None
        return dict(json.loads(row[0]))

    def place(self, resource_id: str) -> tuple[str, str]:
        """(project, region) of a resource."""
        with self._lock:
            row = self._db.execute("SELECT project, region FROM resources WHERE id = ?", (resource_id,)).fetchone()
        return (row[0], row[1]) if row else ("", "")

    def update(self, document: Json) -> None:
        """Write a resource back. Nothing happens where it was deleted meanwhile."""
        names = ("display_name", "state", "create_time", "update_time", "labels", "document")
        sql = f"UPDATE resources SET {', '.join(f'{name} = ?' for name in names)} WHERE id = ?"
        with self._lock:
            self._db.execute(sql, (*_columns(document), _id(document)))

    def move(self, kind: str, resource_id: str, state: str, now: str, **changes: Any) -> Json | None:
        """Take a job to `state` and return it; None, and no change, where the table does not allow that."""
        with self._lock:
            document = self.get(kind, resource_id)
            if document is None or state not in TRANSITIONS.get(document["state"], ()):
                return None
            document |= {"state": state, "updateTime": now, **changes}
            self.update({key: value for key, value in document.items() if value is not None})
            return document

    def delete(self, resource_id: str) -> None:
        with self._lock:
            self._db.execute("DELETE FROM resources WHERE id = ?", (resource_id,))

    def unfinished(self, kind: str) -> list[Json]:
        """Every job or pipeline that has not ended, oldest first."""
        marks = ", ".join("?" * len(ENDED))
        sql = f"SELECT document FROM resources WHERE kind = ? AND state NOT IN ({marks}) ORDER BY create_time, id"
        with self._lock:
            return [json.loads(row[0]) for row in self._db.execute(sql, (kind, *ENDED))]

    def projects(self) -> list[str]:
        """The ids of every project that has a resource."""
        with self._lock:
            return [row[0] for row in self._db.execute("SELECT DISTINCT project FROM resources")]

    def count_by_state(self, kind: str) -> dict[str, int]:
        sql = "SELECT state, count(*) FROM resources WHERE kind = ? GROUP BY state"
        with self._lock:
            return dict(self._db.execute(sql, (kind,)).fetchall())

    def list(
        self, kind: str, project: str, region: str, conditions: Iterable[Where], order: Order, size: int, token: str
    ) -> tuple[Sequence[Json], str]:
        """One page and the token of the next; the token is the last row's place, so that additions shift nothing."""
        wheres = [Where("kind = ? AND project = ? AND region = ?", (kind, project, region)), *conditions]
        direction, beyond = ("DESC", "<") if order.descending else ("ASC", ">")
        if token:
            wheres.append(Where(f"({order.column}, id) {beyond} (?, ?)", _read_token(token)))
        condition = " AND ".join(f"({where.sql})" for where in wheres)
        sql = (
            f"SELECT document, {order.column}, id FROM resources WHERE {condition} "
            f"ORDER BY {order.column} {direction}, id {direction} LIMIT ?"
        )
        parameters = [parameter for where in wheres for parameter in where.parameters]
        with self._lock:
            rows = self._db.execute(sql, (*parameters, size + 1)).fetchall()
        page = rows[:size]
        following = _write_token(page[-1][1], page[-1][2]) if len(rows) > size else ""
        return [json.loads(row[0]) for row in page], following


def _id(document: Json) -> str:
    return str(document["name"]).rpartition("/")[2]


def _columns(document: Json) -> tuple[str, ...]:
    times = (document["createTime"], document["updateTime"])
    labels = json.dumps(document.get("labels", {}))
    return (document.get("displayName", ""), document.get("state", ""), *times, labels, json.dumps(document))


def _write_token(value: str, resource_id: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([value, resource_id]).encode()).decode()


def _read_token(token: str) -> tuple[str, ...]:
    try:
        value, resource_id = json.loads(base64.urlsafe_b64decode(token.encode("ascii")))
        return (str(value), str(resource_id))
    except ValueError:
        raise ApiError(400, f"Invalid page_token {token[:100]!r}.") from None
