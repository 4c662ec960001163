"""Run records and the small documents around them, behind one protocol. The URL chooses the store."""

from urllib.parse import parse_qs, unquote

from kickoff.errors import ConfigurationError
from kickoff.ledger.protocol import SLOTS, AlreadyExists, Conflict, Document, Ledger

__all__ = ["SLOTS", "AlreadyExists", "Conflict", "Document", "Ledger", "open_ledger"]


def open_ledger(url: str) -> Ledger:
    """``sqlite:///absolute/path.db`` or ``firestore://project/database``; `?timeout=` in seconds, of one call."""
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    timeout = {name: float(value[-1]) for name, value in parse_qs(query).items() if name == "timeout"}
    if scheme == "sqlite" and rest.startswith("/"):
        from kickoff.ledger.sqlite import SqliteLedger

        return SqliteLedger(unquote(rest), **timeout)
    if scheme == "firestore" and rest:
        from kickoff.ledger.firestore import FirestoreLedger

        project, _, database = rest.partition("/")
        return FirestoreLedger(project, database or "(default)", **timeout)
    raise ConfigurationError(f"the ledger's URL is {url!r}; it must be sqlite:///PATH or firestore://PROJECT/DATABASE")
