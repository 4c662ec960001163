"""The pause switches: a recipe's own, and one for the whole deployment. New runs are held, not lost."""

from kickoff.clients import Clients
from kickoff.ledger.protocol import AlreadyExists, Conflict, Document, Ledger
from kickoff.recipes import Recipe

SWITCHES = "switches"
_PAUSE = "pause"


def pause_reason(clients: Clients, recipe: Recipe | None) -> str:
    """Why a new run is held, in words that follow "waits for"; empty: it may start."""
    if recipe and recipe.paused:
        return f"recipe {recipe.name} to be taken off pause"
    if clients.policy.paused:
        return "the policy to be taken off pause (policy.yaml: paused)"
    switch = clients.ledger.get_document(SWITCHES, _PAUSE)
    if switch and switch.data.get("on"):
        return "the deployment to be taken off pause: `kickoff resume`"
    return ""


def set_pause(ledger: Ledger, on: bool) -> None:
    """Hold all new runs, or let them start again; the sweep queues what was held."""
    while True:
        switch = ledger.get_document(SWITCHES, _PAUSE)
        try:
            if switch is None:
                ledger.create_document(SWITCHES, _PAUSE, {"on": on})
            else:
                ledger.replace_document(Document(SWITCHES, _PAUSE, {"on": on}, switch.version, switch.updated))
            return
        except (AlreadyExists, Conflict):
            continue
