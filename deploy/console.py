"""The one place that writes for people: colours on a terminal, plain text in a pipe."""

from rich.console import Console

_PIPE_WIDTH = 200

console = Console(highlight=False, soft_wrap=True)
if not console.is_terminal:
    console = Console(highlight=False, soft_wrap=True, width=_PIPE_WIDTH)
