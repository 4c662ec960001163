"""The one place that writes for people: colours on a terminal, plain text in a pipe."""

from rich.console import Console

console = Console(highlight=False, soft_wrap=True)
