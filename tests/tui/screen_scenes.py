"""Ten screens of kbtui on two workspaces: how to get to each, for pictures and for comparisons as text.

The workspace "demo" is kbtui's own, without most pages of the guide, which change often. The workspace
"service" looks like one that a team uses: long titles and paths, two agents, diffs, failures, long results.
"""

import json
import os
import re
import shutil
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from claude_sessions import answered, call, result, session_id, typed, write_session
from support import FIRST_ID, Builder, asked, called, said
from tui_support import Tui

SIZES = ((80, 24), (120, 35), (200, 50))
DEMO = Path(__file__).parents[2] / "assets" / "demo"
DAY = 864_000
"""A day in the unit of the ids of JP's conversations."""


class ScreenTarget(NamedTuple):
    """What the scenes open in a workspace: references, and a query with several hits."""

    present: datetime
    subject: str
    turn: str
    edit: str
    query: str
    hit: str


TARGETS = {
    "demo": ScreenTarget(
        datetime(2026, 11, 20, 12, tzinfo=UTC),
        "engineering/chunking",
        "jp-c17757622345:1",
        "jp-c17757622345:2.1",
        "cache size",
        "engineering",
    ),
    "service": ScreenTarget(
        datetime.fromtimestamp(FIRST_ID / 10 + 86_400, UTC).replace(hour=12, minute=0),
        "adr/007-idempotency-keys-for-payment-requests",
        "jp-c17800000001:2",
        "jp-c17800000001:2.2",
        "retry payment",
        "payment",
    ),
}


def make_workspace(name: str, root: Path, home: Path) -> Path:
    """Make the workspace `name` in `root`; return its directory. `home` is the home of the user."""
    root /= name
    if name == "demo":
        shutil.copytree(DEMO, root, ignore=shutil.ignore_patterns("guide"))
        (root / "docs" / "guide").mkdir(exist_ok=True)
        text = "# Start here\n\nkbtui shows what a workspace knows and what it remembers.\n"
        (root / "docs" / "guide" / "about.md").write_text(text)
    else:
        _fill_service_workspace(Builder(root), home)
    for folder, _, files in os.walk(root):
        for file in files:
            # The times of files are shown, so they must not depend on the checkout.
            os.utime(Path(folder, file), (TARGETS[name].present.timestamp() - 3 * 86_400,) * 2)
    return root


DECISIONS = (
    "Use PostgreSQL for the ledger", "Store amounts as integers", "One service for each currency",
    "Events instead of shared tables", "Outbox pattern for published events", "Time zones are UTC",
    "Idempotency keys for payment requests", "Retries with exponential backoff",
    "Zahlungen werden nie gelöscht", "支払いの再試行", "No personal data in logs",
    "Feature flags are short-lived", "Contract tests between services", "Nightly reconciliation",
)  # fmt: skip


def _fill_service_workspace(built: Builder, home: Path) -> None:
    built.topics(
        adr={"title": "Architecture Decisions", "introduction": "what was decided, when and why"},
        runbooks={"title": "Runbooks", "introduction": "what to do when an alert fires"},
        api={"title": "API Reference", "subjects": "docs/reference/public-http-api"},
    )
    for number, title in enumerate(DECISIONS, 1):
        slug = f"{number:03}-{re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-') or 'note'}"
        built.subject(f"adr/{slug}.md", _write_decision(number, title))
    for name in ("ledger-lag", "payment-retries-pile-up", "database/failover", "database/restore"):
        text = f"# {name.rpartition('/')[2]}\n\n1. Look at the dashboard.\n2. Page the owner.\n"
        built.subject(f"runbooks/{name}.md", text)
    for name in ("payments", "refunds", "webhooks"):
        text = f"# {name}\n\n`POST /v2/{name}` takes an `Idempotency-Key`; see the decisions.\n"
        built.subject(f"reference/public-http-api/{name}.md", text)
    source = built.root / "services/payments/src/payments/retry_policy.py"
    source.parent.mkdir(parents=True)
    source.write_text("def delay(attempt):\n    return min(300, 2 ** attempt)\n")
    path = str(source.relative_to(built.root))
    decision = _write_decision(7, DECISIONS[6])
    output = "".join(f"tests/test_retry.py::test_{n:02} PASSED\n" for n in range(40))
    turns = [
        [
            asked("Why do payments of the same order arrive twice?"),
            *called("a", "learn", decision, topic="adr", subjects=TARGETS["service"].subject[4:]),
            *called("b", "fs_grep_files", f"{path}:1:def delay(attempt):", pattern="def delay"),
            said("Because a **retry** has a new key:\n\n```python\nkey = uuid4()\n```\n"),
        ],
        [
            asked("Then use the decision's key, and limit the delay of a retry to a minute."),
            *called("c", "fs_read_file", source.read_text(), path=path),
            *called(
                "d",
                "fs_modify_file",
                "File modified.",
                path=path,
                patterns=[
                    {"old": "return min(300, 2 ** attempt)", "new": "return min(60, 2 ** attempt)"}
                ],
            ),
            *called("e", "shell", "error: 1 test failed\n", error=True, command="make test"),
            *called("f", "shell", output, command="make test ARGS=tests/test_retry.py"),
            said("Done: the delay of a retry is at most 60 seconds, and 40 tests pass."),
        ],
        *[[asked(f"And what about case {n}?"), said(f"Case {n} is safe.")] for n in range(3, 13)],
    ]
    built.conversation(1, turns, title="Payments of one order arrive twice after a retry")
    for number, title in enumerate(DECISIONS):
        turn = [asked(f"Shall we do this: {title}?"), said(f"Yes. {title}, for each payment.")]
        built.conversation(-number * 9 * DAY - DAY, [turn], title=title, archived=number > 11)
    edit = {"old_string": "2 ** attempt", "new_string": "3 ** attempt"}
    records = [
        typed("Make the backoff steeper, and retry a payment only three times"),
        answered(call(1, "Edit", file_path=path, **edit), call(2, "Bash", command="git status")),
        result(1, "The file has been updated."),
        result(2, "\x1b[31m M services/payments/src/payments/retry_policy.py\x1b[0m\n"),
        answered("The backoff grows by a factor of three.", usage=(1200, 80, 9000, 0)),
    ]
    # Each record has the temporary directory. The screens show sizes, which must not depend on it.
    padding = {"padding": "-" * (1_000 - len(json.dumps(str(built.root))))}
    records = [{**record, **padding} for record in records]
    write_session(home, built.root, session_id(1), records)


def _write_decision(number: int, title: str) -> str:
    return (
        f"---\ntype: decision\ntags: [payments]\n---\n# {title}\n\n## Context\n\nPayment request "
        f"{number} can be sent again by a retry, so that each step must be safe to repeat.\n\n"
        "## Decision\n\n| part | rule |\n|---|---|\n| client | sends the same key |\n"
        "| server | answers with the first result |\n\n```python\nkey = order.id\n```\n\n"
        "## Consequences\n\n1. A retry never pays twice.\n2. Keys are kept for 30 days.\n"
    )


async def _show_home(tui: Tui, target: ScreenTarget) -> None:
    await tui.press("H")
    await tui.until("search everything")


async def _show_subject(tui: Tui, target: ScreenTarget) -> None:
    await tui.open(target.subject)
    await _wait_for_citations(tui)


async def _show_turn(tui: Tui, target: ScreenTarget) -> None:
    await tui.open(target.turn)
    await tui.press("2")
    await _wait_for_citations(tui)


async def _show_diff(tui: Tui, target: ScreenTarget) -> None:
    await tui.open(target.edit)
    await _wait_for_citations(tui)


async def _show_changes(tui: Tui, target: ScreenTarget) -> None:
    await tui.open(target.turn.partition(":")[0])
    await tui.press("2", "g", "C")
    await tui.until("next change")


async def _show_outline(tui: Tui, target: ScreenTarget) -> None:
    await tui.open(target.turn)
    await _wait_for_citations(tui)
    await tui.press("O")
    await tui.until("Outline")


async def _show_suggestions(tui: Tui, target: ScreenTarget) -> None:
    await tui.press("slash")
    await tui.until("FILTERS")


async def _show_results(tui: Tui, target: ScreenTarget) -> None:
    await tui.press("slash")
    await tui.type(target.query)
    await tui.until_hits()
    pane: Any = tui.main.results_pane
    await tui.until(lambda: pane.answer and pane.answer.query == target.query)
    await tui.until(lambda: "by meaning …" not in pane.query_one("#answer").text)
    await tui.until(lambda: pane.list.selected_row is not None)
    if tui.app.size.width > 100:
        # The reader shows the hit beside the results.
        hit = pane.list.selected_row.data
        await tui.until(
            lambda: hit.ref.startswith(tui.main.reader_pane.document_view.document.ref or "?")
        )
    await tui.press("escape")
    await _wait_for_citations(tui)


async def _show_entries(tui: Tui, target: ScreenTarget) -> None:
    await tui.press("E")
    await tui.until("entries  ")
    await tui.until(lambda: tui.app.screen.has_loaded_content)
    if tui.app.size.width > 100:
        await tui.until("Passages")


async def _show_workshop(tui: Tui, target: ScreenTarget) -> None:
    await tui.press("P")
    await tui.until("tokens")
    await tui.until(lambda: tui.app.screen.has_loaded_content)
    # The preview is built in a thread.
    await tui.until("The following knowledge")


async def _wait_for_citations(tui: Tui) -> None:
    await tui.until(lambda: not tui.main.citations_pane.is_loading_citations)
    await tui.until(lambda: not tui.main.document_controller.is_opening)


SCENES: dict[str, Callable[[Tui, ScreenTarget], Awaitable[None]]] = {
    "home": _show_home,
    "subject": _show_subject,
    "turn": _show_turn,
    "diff": _show_diff,
    "changes": _show_changes,
    "outline": _show_outline,
    "suggestions": _show_suggestions,
    "results": _show_results,
    "entries": _show_entries,
    "workshop": _show_workshop,
}
"""Name of a screen -> the steps from the main screen to it."""


async def leave_scene(tui: Tui) -> None:
    """Go back to the main screen with all panes, and focus the library."""
    while tui.app.screen is not tui.main:
        await tui.press("escape")
    for _ in range(3):
        await tui.press("escape")
    await tui.press("1")
