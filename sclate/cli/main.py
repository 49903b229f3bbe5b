"""The entry point. All else is imported inside: an interrupt meanwhile, when nothing is made yet, just ends it."""

from __future__ import annotations

import os
import signal
from types import FrameType


def _leave(_signal: int, _frame: FrameType | None) -> None:
    """No exception: half the modules would be in its traceback, and one that is being imported might catch it."""
    os.write(2, b"interrupted\n")
    os._exit(130)


def main() -> None:
    """`sclate`."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, _leave)
    from sclate.cli import app

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app.main()


if __name__ == "__main__":
    main()
