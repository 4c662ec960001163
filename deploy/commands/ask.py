"""`kickoff check|explain|publish`: ways to ask before, after, and for real."""

import typer


def register(app: typer.Typer) -> None:
    """Nothing yet."""
