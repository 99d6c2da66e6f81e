"""Bring the index up to date with the files, and say how far it is.

Ends when the vectors are done too, unless --no-vectors.
"""

from __future__ import annotations

import sys
import time

from kbtui.cli.output import emit_json, note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from kbtui.engine.client import EngineClient


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui index` (decisions D)."""
    add = parser.add_argument
    add("--rebuild", action="store_true", help="make a new index beside the old one, then use it")
    add("--watch", action="store_true", help="go on, and say what changes, until interrupted")
    add("--no-vectors", action="store_true", help="do not wait for the vectors")
    add("--json", action="store_true", help="counts and times as JSON")


def run(args: Namespace) -> int:
    """Have the engine refresh, and wait."""
    from kbtui.library import open_workspace

    library = open_workspace(args.workspace)
    began = time.monotonic()
    engine = library.engine()
    request: dict[str, Any] = {"rebuild": True} if args.rebuild else {"force": True}
    progress = _Progress()
    while not engine.request("refresh", wait=0.5, timeout=30.0, **request)["done"]:
        request = {"force": True}
        progress.show(engine)
    keywords = time.monotonic() - began
    state = engine.request("status")
    if not args.no_vectors:
        while True:
            state = engine.request("settle", wait=0.5)
            if state["done"]:
                break
            progress.show(engine)
    progress.end()
    facts = {
        **library.reader().counts(),
        "seconds_keywords": round(keywords, 3),
        "seconds": round(time.monotonic() - began, 3),
        "semantic": state["semantic"],
        "vectors_left": state["left"],
        "reason": state["reason"],
    }
    if args.json:
        emit_json(facts)
    else:
        print(
            f"{facts['subjects']} subjects, {facts['conversations']} conversations, "
            f"{facts['chunks']} chunks, {facts['citations']} citations in {facts['seconds']:.1f} s"
        )
        if state["reason"] and not args.no_vectors:
            note(f"keywords only: {state['reason']}")
    if state.get("error"):
        note(f"the last refresh failed: {state['error']}")
        return 3
    if args.watch:
        _watch(engine)
    library.close()
    return 0


def _watch(engine: EngineClient) -> None:
    note("watching; Ctrl+C ends")
    for event in engine.events():
        if event.get("event") == "changed":
            names = [*event["subjects"], *(f"jp-c{number}" for number in event["conversations"])]
            print("changed: " + (", ".join(names[:10]) or "configuration"), flush=True)


class _Progress:
    """One line on stderr, on a terminal only."""

    def __init__(self) -> None:
        self._shown = False

    def show(self, engine: EngineClient) -> None:
        if not sys.stderr.isatty():
            return
        progress = engine.request("status").get("progress")
        if progress:
            left = progress.get("seconds_left")
            text = f"{progress['phase']} {progress['done']}/{progress['total']}"
            text += f", {left:.0f} s left" if left else ""
            text += f"; waiting, {progress['waits']}" if progress.get("waits") else ""
        else:
            text = "working"
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
        self._shown = True

    def end(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
