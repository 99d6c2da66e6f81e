"""The doctor screen, which checks knowledge, conversations, index, engine, model and tools for JP."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kbtui.assistant.jp_local_tools import (
    PlannedFileChange,
    apply_file_changes,
    plan_jp_tool_installation,
)
from kbtui.errors import NothingFound
from kbtui.library.diagnostics import AREAS, DiagnosticFinding, FindingState, run_diagnostics
from kbtui.references import parse_ref
from kbtui.terminal_text import format_counted_noun, sanitize_to_one_line
from kbtui.tui.reader.reader_blocks import (
    LeftAndRightLineBlock,
    ParagraphReaderBlock,
    VerbatimTextReaderBlock,
    make_heading_block_with_note,
)
from kbtui.tui.reader.reader_document import ReaderDocument
from kbtui.tui.secondary_screen import DocumentOverlayScreen, SecondaryScreen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import App

    from kbtui.engine.engine_protocol import IndexChangedEvent
    from kbtui.library import Library
    from kbtui.tui.framework.styled_text import HighlightPattern, Spans, StyledLines
    from kbtui.tui.reader.reader_blocks import ReaderBlock


def offer_tool_update(
    app: App[None],
    library: Library,
    run_in_thread: Callable[[Callable[[], Any], Callable[[Any], object]], object],
    show_message: Callable[[str], object],
    on_done: Callable[[], object],
) -> None:
    """Show how an update of kbtui's tools for JP would change files; write the files if the user agrees.

    `run_in_thread` takes two functions. It runs the first one in a background thread and passes its
    result to the second one. If the first one raises an error, the error is shown. `on_done` is
    called after the files have been written.
    """

    def show_tool_file_changes(changes: list[PlannedFileChange]) -> None:
        def write_tool_files_if_confirmed(is_yes: bool | None) -> None:
            if is_yes:
                write = partial(apply_file_changes, library.workspace, changes)
                run_in_thread(write, partial(report_written_files, len(changes)))

        page = build_tool_update_page(changes)
        screen = DocumentOverlayScreen("Tools for JP", page, confirm_label="write it")
        app.push_screen(screen, write_tool_files_if_confirmed)

    def report_written_files(count: int, _: None) -> None:
        show_message(f"updated the tools for JP: {format_counted_noun(count, 'file')} changed")
        on_done()

    run_in_thread(lambda: plan_jp_tool_file_updates(library), show_tool_file_changes)


def plan_jp_tool_file_updates(library: Library) -> list[PlannedFileChange]:
    """Return the changes that bring the installed tools up to date.

    Raises `NothingFound` if no tools are installed, if nothing has to change, or if the only
    outdated files are ones that the user has edited.
    """
    changes = plan_jp_tool_installation(library.workspace, library.load_knowledge())
    if all(change.action in ("write", "taken") for change in changes):
        raise NothingFound(
            "the tools for JP are not installed", hint="`kbtui tools install` installs them"
        )
    todo = [change for change in changes if change.is_change_needed]
    if not todo and any(change.is_outdated for change in changes):
        raise NothingFound(
            "a tool's file is out of date, and you have edited it",
            hint="`kbtui tools install` shows what is new",
        )
    if not todo:
        raise NothingFound("the tools for JP are up to date")
    return todo


def build_tool_update_page(changes: Sequence[PlannedFileChange]) -> ReaderDocument:
    """Return a page that shows each change as a diff, and asks whether to write the changes."""
    about = "The topics have changed since the tools for JP were installed. JP reads these files:"
    blocks: list[ReaderBlock] = [ParagraphReaderBlock("about", [(about, "")])]
    for change in changes:
        path, diff = change.path, change.make_diff()
        blocks.append(ParagraphReaderBlock(f"path:{path}", [(path, "strong")], above=1))
        blocks.append(VerbatimTextReaderBlock(f"diff:{path}", diff, language="diff", panel=True))
    ask = LeftAndRightLineBlock("ask", [("Write it?", "h2")], [("y: yes · n: no", "key")], above=1)
    return ReaderDocument("tools", "Tools for JP", [*blocks, ask])


STATE_SIGNS = {"ok": ("✓ ", "inserted"), "note": ("· ", "warning"), "wrong": ("! ", "error")}


@dataclass(slots=True, eq=False)
class DoctorFindingBlock(ParagraphReaderBlock):
    """A block that shows a finding of a check: a sign for its state, followed by its text."""

    state: FindingState

    def lay_out_lines(self, width: int, found: HighlightPattern | None) -> StyledLines:
        lines = ParagraphReaderBlock.lay_out_lines(self, max(8, width - 2), found)
        for number, line in enumerate(lines):
            line.spans.insert(0, ("  ", "") if number else STATE_SIGNS[self.state])
        return lines


def build_doctor_screen_document(
    findings: list[DiagnosticFinding], checking: str | None
) -> ReaderDocument:
    """Return a page with a section for each area that has findings or is being checked.

    `checking` is the area being checked, or None when all checks are done.
    """
    blocks: list[ReaderBlock] = []
    for area in AREAS:
        own = [finding for finding in findings if finding.area == area]
        if not own and area != checking:
            continue
        counts = ", ".join(filter(None, _format_counts_of_wrong_findings_and_notes(own)))
        above = int(bool(blocks))
        blocks.append(
            make_heading_block_with_note(f"head:{area}", area.capitalize(), counts, above)
        )
        own.sort(key=lambda finding: ("ok", "wrong", "note").index(finding.state))
        for finding in own:
            role = "dim" if finding.state == "ok" else ""
            spans: Spans = [(sanitize_to_one_line(finding.message), role)]
            key = f"{area}:{finding.message}"
            blocks.append(DoctorFindingBlock(key, spans, finding.state, link=finding.ref))
        if area == checking:
            blocks.append(ParagraphReaderBlock(f"checking:{area}", [("… checking", "dim")]))
    return ReaderDocument("doctor", "Doctor", blocks)


def _format_counts_of_wrong_findings_and_notes(
    findings: list[DiagnosticFinding],
) -> tuple[str, str]:
    """Return two strings such as "2 wrong" and "1 note"; a string is "" if its number is 0."""
    states = [finding.state for finding in findings]
    wrong, notes = states.count("wrong"), states.count("note")
    return (
        f"{wrong:,} wrong" if wrong else "",
        format_counted_noun(notes, "note") if notes else "",
    )


class DoctorScreen(SecondaryScreen):
    """A screen that runs checks and shows their findings. Its result is a reference to open, or None."""

    HEADING = "Doctor"
    SCOPE = "doctor"
    NOTES = ("✓ OK, · note, ! wrong.",)

    def __init__(self, library: Library) -> None:
        super().__init__(library)
        self.findings: list[DiagnosticFinding] = []
        self.checking: str | None = AREAS[0]
        """The area being checked, or None when all checks are done."""
        self._run = 0
        # Hide the message line until it is needed. Messages are rare, because even a failed check becomes a finding.
        self.message_line.display = False

    def on_mount(self) -> None:
        self.reader.focus()

    def on_unmount(self) -> None:
        self._run += 1

    def handle_files_changed(self, event: IndexChangedEvent) -> None:
        """Do nothing, because the checks run again only when the user reloads the screen."""

    def action_reload(self) -> None:
        self._run += 1
        self.show_message()
        self._show_findings(self._run, [], AREAS[0], build_doctor_screen_document([], AREAS[0]))
        threading.Thread(target=self._run_diagnostic_checks, args=(self._run,), daemon=True).start()

    def _run_diagnostic_checks(self, run: int) -> None:
        """Run the checks, and repeatedly show the findings so far. Called in a background thread."""
        findings: list[DiagnosticFinding] = []
        area, next_count = AREAS[0], 1

        def show_findings_so_far(checking: str | None) -> None:
            document = build_doctor_screen_document(findings, checking)
            self.call_later(self._show_findings, run, list(findings), checking, document)

        try:
            for finding in run_diagnostics(self.library):
                if run != self._run:
                    return
                if finding.area != area:
                    area, next_count = finding.area, 0
                findings.append(finding)
                # Show the first finding of an area at once, because the next check may take seconds. Show
                # later findings in ever larger batches, because the page is laid out again for each batch.
                if len(findings) >= next_count:
                    next_count = 2 * len(findings)
                    show_findings_so_far(area)
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            findings.append(DiagnosticFinding(area, "wrong", "check_failed", {"detail": detail}))
        show_findings_so_far(None)

    def _show_findings(
        self,
        run: int,
        findings: list[DiagnosticFinding],
        checking: str | None,
        document: ReaderDocument,
    ) -> None:
        if run != self._run:
            return
        self.findings, self.checking = findings, checking
        self.show_document(document)
        wrong, notes = _format_counts_of_wrong_findings_and_notes(findings)
        left: Spans = []
        if wrong:
            left = [STATE_SIGNS["wrong"], (wrong, "strong")]
        elif checking is None:
            left = [STATE_SIGNS["ok"], ("Nothing is wrong", "strong")]
        if notes:
            left += [("  · ", "warning"), (notes, "strong")]
        right: Spans = [(f"checking {checking} …", "dim")] if checking else []
        self.show_totals_line((left, right))
        self.show_key_hints()

    def show_message(self, text: str = "", role: str = "strong") -> None:
        """Show a message, or hide the message line if `text` is empty."""
        self.message_line.display = bool(text)
        super().show_message(text, role)

    @property
    def command_condition_states(self) -> dict[str, bool]:
        return {"tools": any(one.code.startswith("learn_tool_") for one in self.findings)}

    def action_update_tools(self) -> None:
        """Show how the installed tools for JP would change, and update the tools if the user agrees."""

        offer_tool_update(
            self.app, self.library, self.run_in_thread, self.show_message, self.action_reload
        )

    def action_go_to_next_problem(self, step: int) -> None:
        self.go_to_next_wanted_block(
            step, lambda block: isinstance(block, DoctorFindingBlock) and block.state != "ok"
        )

    def action_open_entry_of_finding(self) -> None:
        block = self.cursor_block
        if block and block.link:
            # The subject existed during the check; if it has been deleted since, opening it shows an error.
            self.dismiss(parse_ref(block.link, lambda topic, slug: True))
        elif isinstance(block, DoctorFindingBlock):
            self.show_message("There is nothing to open for this finding.", "dim")
