"""The names that both targets, the laptop and the cloud, give to what they make."""

UPLOADS = "dataset-uploads"
REQUESTS = "training-requests"
EVENTS = "training-events"
LOGS = "job-logs"
FINISHED = "run-finished"

SUBSCRIPTIONS = {
    UPLOADS: "start_training",
    REQUESTS: "start_training",
    EVENTS: "record_completion",
    LOGS: "record_completion",
}
"""Topic: the function that its push subscription calls."""

DEAD_LETTERED = (*SUBSCRIPTIONS, FINISHED)
"""Topics whose subscription, push or pull, gives up on a message after ten tries."""

BUCKETS = ("data", "models", "staging")
"""Suffixes: the data bucket is ``{project}-data``."""

FUNCTIONS = ("start_training", "record_completion", "sweep", "dashboard")


def dead_letter(topic: str) -> str:
    """The topic that takes what could not be delivered, and the name of the subscription on it."""
    return f"{topic}-dead-letter"


def pull(topic: str) -> str:
    """The name of the subscription from which a consumer of one's own reads a topic."""
    return f"{topic}-pull"


TOPICS = (*DEAD_LETTERED, *map(dead_letter, DEAD_LETTERED))
