"""Run records in one SQLite file, shared by several processes and threads of one machine."""

import json
import os
import sqlite3
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kickoff.errors import LedgerUnavailable
from kickoff.ledger.protocol import SLOTS, AlreadyExists, Conflict, Document
from kickoff.ledger.records import decode_run, decode_runs, encode_data, encode_run, index_fields, sortable, with_slots
from kickoff.points import around
from kickoff.runs import Run, State

TABLES_VERSION = 1

_TABLES = """
CREATE TABLE IF NOT EXISTS runs (
  run_id TEXT PRIMARY KEY, version INTEGER NOT NULL, record TEXT NOT NULL,
  state TEXT NOT NULL, recipe TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL,
  due TEXT, job_id TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS runs_created ON runs (created, run_id);
CREATE INDEX IF NOT EXISTS runs_state ON runs (state, created, run_id);
CREATE INDEX IF NOT EXISTS runs_recipe ON runs (recipe, created, run_id);
CREATE INDEX IF NOT EXISTS runs_recipe_state ON runs (recipe, state, created, run_id);
CREATE INDEX IF NOT EXISTS runs_due ON runs (due) WHERE due IS NOT NULL;
CREATE INDEX IF NOT EXISTS runs_job ON runs (job_id) WHERE job_id != '';
CREATE TABLE IF NOT EXISTS documents (
  collection TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, data TEXT NOT NULL, updated TEXT NOT NULL,
  PRIMARY KEY (collection, id)
);
"""
_LAST = "\U0010ffff"


class SqliteLedger:
    """A connection for each thread; a writer waits at most `timeout` seconds for another one."""

    def __init__(self, path: str, timeout: float = 10.0) -> None:
        self._path = Path(path)
        self._timeout = timeout
        self._local = threading.local()
        with _unavailable():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._create_tables()

    def create_run(self, run: Run) -> Run:
        fields = index_fields(run)
        columns = ("run_id", "version", "record", *fields)
        values = (run.run_id, 1, encode_run(run), *fields.values())
        with around("ledger.create_run"), self._write(f"run {run.run_id}") as db:
            db.execute(f"INSERT INTO runs ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", values)
        return run.model_copy(update={"version": "1"})

    def get_run(self, run_id: str) -> Run | None:
        rows = self._read("SELECT record, version FROM runs WHERE run_id = ?", (run_id,))
        return decode_run(rows[0][0], str(rows[0][1])) if rows else None

    def replace_run(self, run: Run, *, claim: Sequence[str] = ()) -> Run:
        run, release = with_slots(run, tuple(claim))
        fields = {"version": int(run.version or 0) + 1, "record": encode_run(run), **index_fields(run)}
        assignments = ", ".join(f"{name} = ?" for name in fields)
        with around("ledger.replace_run"), self._write(f"one of the slots {', '.join(claim)}") as db:
            where = "WHERE run_id = ? AND version = ?"
            values = (*fields.values(), run.run_id, int(run.version or 0))
            if db.execute(f"UPDATE runs SET {assignments} {where}", values).rowcount != 1:
                raise Conflict(f"run {run.run_id} changed since it was read")
            for slot in release:
                db.execute("DELETE FROM documents WHERE collection = ? AND id = ?", (SLOTS, slot))
            for slot in claim:
                _insert(db, SLOTS, slot, encode_data(SLOTS, slot, {"run_id": run.run_id}))
        return run.model_copy(update={"version": str(fields["version"])})

    def find_runs(
        self,
        *,
        states: Collection[State] = (),
        recipe: str = "",
        due_before: datetime | None = None,
        job_id: str = "",
        oldest_first: bool = False,
        limit: int = 100,
        after: str = "",
    ) -> list[Run]:
        where: list[str] = []
        values: list[Any] = []
        for clause, value in (
            ("recipe = ?", recipe),
            ("job_id = ? AND job_id != ''", job_id),
            ("due <= ?", sortable(due_before) if due_before else ""),
        ):
            if value:
                where.append(clause)
                values.append(value)
        if after:
            sign = ">" if oldest_first else "<"
            where.append(f"(created, run_id) {sign} (SELECT created, run_id FROM runs WHERE run_id = ?)")
            values.append(after)
        # One indexed query for each state, merged: the cost is that of a page, however many runs there are.
        order = ("due", "created", "run_id") if due_before else ("created", "run_id")
        descending = not due_before and not oldest_first
        direction = " DESC" if descending else ""
        by = ", ".join(f"{name}{direction}" for name in order)
        found: list[Any] = []
        for one in [[state.value] for state in states] or [[]]:
            clauses = " AND ".join([*where, *(["state = ?"] if one else [])]) or "1"
            sql = f"SELECT {', '.join(order)}, record, version FROM runs WHERE {clauses} ORDER BY {by} LIMIT ?"
            found += self._read(sql, (*values, *one, limit))
        found.sort(key=lambda row: row[: len(order)], reverse=descending)
        return decode_runs((row[-2], str(row[-1])) for row in found[:limit])

    def count_runs(self, *, states: Collection[State] = (), recipe: str = "") -> int:
        where = ["recipe = ?"] if recipe else []
        if states:
            where.append(f"state IN ({', '.join('?' * len(states))})")
        values = (*([recipe] if recipe else []), *(state.value for state in states))
        rows = self._read(f"SELECT COUNT(*) FROM runs WHERE {' AND '.join(where) or '1'}", values)
        return int(rows[0][0])

    def create_document(self, collection: str, id: str, data: dict[str, Any]) -> Document:
        text = encode_data(collection, id, data)
        with around(f"ledger.create_document.{collection}"), self._write(f"{collection}/{id}") as db:
            updated = _insert(db, collection, id, text)
        return Document(collection, id, data, "1", updated)

    def get_document(self, collection: str, id: str) -> Document | None:
        found = self._documents("collection = ? AND id = ?", (collection, id))
        return found[0] if found else None

    def replace_document(self, document: Document) -> Document:
        text = encode_data(document.collection, document.id, document.data)
        version, updated = int(document.version), datetime.now(UTC)
        with around(f"ledger.replace_document.{document.collection}"), self._write("") as db:
            where = "WHERE collection = ? AND id = ? AND version = ?"
            values = (version + 1, text, sortable(updated), document.collection, document.id, version)
            sql = f"UPDATE documents SET version = ?, data = ?, updated = ? {where}"
            if db.execute(sql, values).rowcount != 1:
                raise Conflict(f"{document.collection}/{document.id} changed since it was read")
        return Document(document.collection, document.id, document.data, str(version + 1), updated)

    def delete_document(self, document: Document) -> None:
        place = (document.collection, document.id)
        with around(f"ledger.delete_document.{document.collection}"), self._write("") as db:
            sql = "DELETE FROM documents WHERE collection = ? AND id = ? AND version = ?"
            gone = db.execute(sql, (*place, int(document.version))).rowcount
            if not gone and db.execute("SELECT 1 FROM documents WHERE collection = ? AND id = ?", place).fetchone():
                raise Conflict(f"{document.collection}/{document.id} changed since it was read")

    def list_documents(self, collection: str, *, prefix: str = "", limit: int = 100, after: str = "") -> list[Document]:
        where = "collection = ? AND id >= ? AND id < ? AND id > ? ORDER BY id LIMIT ?"
        return self._documents(where, (collection, prefix, prefix + _LAST, after, limit))

    def close(self) -> None:
        db = getattr(self._local, "db", None)
        if db:
            db.close()
            self._local.db = None

    def _documents(self, where: str, values: tuple[Any, ...]) -> list[Document]:
        rows = self._read(f"SELECT collection, id, data, version, updated FROM documents WHERE {where}", values)
        return [
            Document(collection, id, json.loads(data), str(version), datetime.fromisoformat(updated))
            for collection, id, data, version, updated in rows
        ]

    def _read(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        with _unavailable():
            return self._connection().execute(sql, values).fetchall()

    @contextmanager
    def _write(self, unique: str) -> Iterator[sqlite3.Connection]:
        """One transaction that takes the write lock at once; AlreadyExists names what is `unique`."""
        with _unavailable():
            db = self._connection()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except sqlite3.IntegrityError as error:
                raise AlreadyExists(f"{unique} exists") from error
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    def _connection(self) -> sqlite3.Connection:
        # A connection must not cross a fork: https://www.sqlite.org/howtocorrupt.html
        if getattr(self._local, "db", None) is None or self._local.pid != os.getpid():
            self._local.db = sqlite3.connect(self._path, timeout=self._timeout, isolation_level=None)
            self._local.pid = os.getpid()
            self._local.db.execute("PRAGMA synchronous = FULL")  # an acknowledged delivery survives a power cut
        connection: sqlite3.Connection = self._local.db
        return connection

    def _create_tables(self) -> None:
        db = self._connection()
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > TABLES_VERSION:
            raise LedgerUnavailable(f"{self._path} has tables of version {version}; this code knows {TABLES_VERSION}")
        if version < TABLES_VERSION:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {TABLES_VERSION}; COMMIT;")


def _insert(db: sqlite3.Connection, collection: str, id: str, text: str) -> datetime:
    updated = datetime.now(UTC)
    sql = "INSERT INTO documents (collection, id, version, data, updated) VALUES (?, ?, 1, ?, ?)"
    db.execute(sql, (collection, id, text, sortable(updated)))
    return updated


@contextmanager
def _unavailable() -> Iterator[None]:
    """SQLite's locked, full, unreadable file as the one error that the rest of Kickoff knows."""
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerUnavailable(f"the ledger did not answer: {error}") from error
    except OSError as error:
        raise LedgerUnavailable(f"the ledger cannot be opened: {error}") from error
