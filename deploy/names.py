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

BUCKETS = ("data", "models", "staging")
"""Suffixes: the data bucket is ``{project}-data``."""

FUNCTIONS = ("start_training", "record_completion", "sweep", "dashboard")


def dead_letter(topic: str) -> str:
    """The topic that takes what could not be delivered, and the name of the subscription on it."""
    return f"{topic}-dead-letter"


TOPICS = (*SUBSCRIPTIONS, FINISHED, *map(dead_letter, SUBSCRIPTIONS))
