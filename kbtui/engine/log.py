"""The engine's log, which is its standard error."""

from __future__ import annotations

import contextlib
import os
import sys
import time

from kbtui.text import safe


def log(text: str) -> None:
    """Write a record to the log; control characters are removed, for it is read in a terminal.

    All lines but the first are indented, so that no message looks like another record
    (`cli.redaction` relies on it). A full disk does not end the engine.
    """
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    record = "\n  ".join(safe(text, "strip").splitlines())
    with contextlib.suppress(OSError):
        print(f"{stamp} [{os.getpid()}] {record}", file=sys.stderr, flush=True)
