"""Updates the main screen when files of the workspace change or the engine sends events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.idle_garbage_collection import freeze_gc_if_many_new_entries
from kbtui.tui.topics_and_conversations_snapshot import (
    TopicsAndConversations,
    TopicsAndConversationsReader,
)
from kbtui.tui.tui_command_table import find_key_label_of_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.engine.engine_protocol import EngineEvent, IndexChangedEvent
    from kbtui.references import Ref
    from kbtui.tui.main.document_controller import MainScreenContext
    from kbtui.tui.main.search_controller import SearchController

MAX_NAMED_CONVERSATIONS = 500
"""An event from the engine lists at most this many changed conversations.

If it lists this many, others may have changed, too.
"""
CHECK_SECONDS = 2.0
"""The interval in seconds at which kbtui checks whether the workspace still exists."""


class WorkspaceChangeListener:
    """Listens to the engine, and reloads the library's lists when files have changed."""

    def __init__(
        self,
        main: MainScreenContext,
        search: SearchController,
        handle_files_changed: Callable[[IndexChangedEvent], None],
        update_key_hints: Callable[[], None],
    ) -> None:
        self._main = main
        self._search = search
        self._handle_files_changed = handle_files_changed
        self._update_key_hints = update_key_hints
        self._snapshot_reader = TopicsAndConversationsReader(main.library)
        self._snapshot_worker = LatestOnlyWorker(main.screen)
        self._details_worker = LatestOnlyWorker(main.screen)
        self._listen_worker = LatestOnlyWorker(main.screen)
        self._check_worker = LatestOnlyWorker(main.screen)
        self._pause_worker = LatestOnlyWorker(main.screen)
        self._prefer_worker = LatestOnlyWorker(main.screen)
        self._preferred_ref: Ref | None = None
        """The reference of the document that the engine was last told to embed first, or None."""
        self._is_workspace_gone = False
        self._stop_listening: Callable[[], None] | None = None

    def read_lists_and_listen_to_engine(self) -> None:
        """Read the library and listen to the engine. If the engine is not running, start it."""
        self.read_library_lists()
        self._main.screen.set_interval(CHECK_SECONDS, self._start_check_that_workspace_exists)

        def receive_engine_event(event: EngineEvent) -> None:
            self._main.screen.call_later(self.handle_engine_event, event)

        def keep_listener_stop_function(stop: Callable[[], None]) -> None:
            self._stop_listening = stop

        def show_engine_gone(error: Exception) -> None:
            self._main.status.show_engine_event({"event": "gone", "reason": str(error)})

        self._listen_worker.submit_call(
            lambda: self._main.library.listen_to_engine_events(receive_engine_event),
            keep_listener_stop_function,
            show_engine_gone,
        )

    def stop_listening_to_engine(self) -> None:
        """Stop listening to the engine."""
        if self._stop_listening:
            self._stop_listening()

    def _start_check_that_workspace_exists(self) -> None:
        # Check it in a background thread, because a file system may be slow to answer.
        workspace = self._main.library.workspace
        if not self._check_worker.has_running_call:
            self._check_worker.submit_call(
                lambda: (workspace.root.is_dir(), workspace.is_jp_workspace),
                self._handle_workspace_check_result,
                lambda error: self._show_whether_workspace_exists(False),
            )

    def _handle_workspace_check_result(self, state: tuple[bool, bool]) -> None:
        is_found, is_jp_workspace = state
        contents = self._main.document_controller.contents
        self._show_whether_workspace_exists(is_found)
        if is_found and contents is not None and contents.is_jp_workspace != is_jp_workspace:
            # The user ran `jp init` or deleted `.jp`, so the configuration is now in another directory.
            self.read_library_lists()

    def _show_whether_workspace_exists(self, is_found: bool) -> None:
        if is_found != self._is_workspace_gone:
            return
        self._is_workspace_gone = not is_found
        root = self._main.library.workspace.root
        gone = f"The workspace was moved or deleted. Showing what was loaded from {root}"
        self._main.status.problem = "" if is_found else gone
        if is_found:
            self.read_library_lists()

    def handle_engine_event(self, event: EngineEvent) -> None:
        """Show an event of the engine in the status line. If files have changed, reload them."""
        features = self._main.status.embedding_key_hint_conditions
        self._main.status.show_engine_event(event)
        if self._main.status.embedding_key_hint_conditions != features:
            self._update_key_hints()
        self._search.show_search_wait_reason()
        answer = self._main.panes.results.answer
        if event["event"] == "ready":
            self.prefer_shown_entry_for_embedding()
        elif event["event"] == "gone":
            self._preferred_ref = None
        if event["event"] == "changed":
            self.read_library_lists()
            self._handle_files_changed(event)
        elif event["event"] == "ready" and event.get("semantic") and answer and answer.degraded:
            # The semantic search has become available, so add its hits to those of the keyword search.
            self._search.repeat_search()

    def prefer_shown_entry_for_embedding(self) -> None:
        """Have the engine embed the shown document first, unless all passages have vectors."""
        target = self._main.document_controller.shown
        ref = target.ref if target else None
        is_new = ref is not None and ref != self._preferred_ref
        if ref is None or not is_new or not self._main.status.may_passages_lack_vectors:
            return
        self._preferred_ref = ref
        self._prefer_worker.submit_call(lambda: self._main.library.prefer_entry_for_embedding(ref))

    def pause_or_continue_embedding(self) -> None:
        """Have the engine pause the embedding of passages, or continue it if it is paused."""
        status = self._main.status
        if status.is_embedding_model_off:
            self._main.show_why_key_does_nothing(
                "Nothing is embedded, because the model is switched off."
            )
            return
        is_paused = not status.is_embedding_paused
        text = "Embedding is paused until you resume it." if is_paused else "Embedding continues."
        self._pause_worker.submit_call(
            lambda: self._main.library.set_embedding_paused(is_paused),
            lambda _: status.flash_message(text),
            lambda error: status.flash_message(f"cannot reach the engine: {error}", "error"),
        )

    @staticmethod
    def may_event_concern_entry(ref: Ref | None, event: IndexChangedEvent) -> bool:
        """Return whether the change that an event reports may affect the entry with this reference."""
        if ref is None or ref.kind != "conversation" or event.get("subjects"):
            return True  # the shown turns may cite a changed subject
        changed = event.get("conversations") or []
        return ref.conversation in changed or len(changed) >= MAX_NAMED_CONVERSATIONS

    def read_library_lists(self) -> None:
        """Read topics, subjects and conversations in a background thread, and show them."""
        self._main.status.set_activity_text("lists", "reading the topics and conversations …")
        self._details_worker.discard_pending_results()

        def read_library_snapshot_if_possible() -> TopicsAndConversations | None:
            # If the workspace no longer exists, empty lists would look as if it had no topics.
            exists = self._main.library.workspace.root.is_dir()
            return self._snapshot_reader.read_library_snapshot() if exists else None

        self._snapshot_worker.submit_call(
            read_library_snapshot_if_possible,
            self._show_library_snapshot_when_read,
            self._report_library_read_failure,
        )

    def _show_library_snapshot_when_read(self, snapshot: TopicsAndConversations | None) -> None:
        self._main.status.set_activity_text("lists", None)
        if snapshot is None:
            self._show_whether_workspace_exists(False)
        else:
            freeze_gc_if_many_new_entries(snapshot.subject_and_conversation_count)
            self._show_library_snapshot(snapshot)

    def _show_library_snapshot(self, snapshot: TopicsAndConversations) -> None:
        document_controller = self._main.document_controller
        before = document_controller.contents
        document_controller.set_library_contents(snapshot)
        if snapshot.learn_tool_problem and before and not before.learn_tool_problem:
            from kbtui.tui.generated_reader_pages import describe_outdated_jp_tools

            key = find_key_label_of_command("tools", self._main.screen.configured_keys)
            self._main.status.flash_message(describe_outdated_jp_tools(key), "warning")
        self._update_key_hints()
        self._main.panes.library.show_library_contents(snapshot)
        if document_controller.shown and document_controller.shown.key == "home":
            document_controller.reload_shown_document()
        if snapshot.has_unread_details:
            self._read_library_snapshot_details(snapshot)

    def _read_library_snapshot_details(self, snapshot: TopicsAndConversations) -> None:
        self._details_worker.submit_call(
            lambda: self._snapshot_reader.read_more_snapshot_details(snapshot),
            self._read_further_details_or_show_snapshot,
            self._report_library_read_failure,
        )

    def _read_further_details_or_show_snapshot(self, snapshot: TopicsAndConversations) -> None:
        if (
            snapshot.has_unread_details
            and not self._main.panes.library.needs_conversation_summaries
        ):
            self._main.document_controller.contents = snapshot
            self._read_library_snapshot_details(snapshot)
        else:
            self._show_library_snapshot(snapshot)

    def _report_library_read_failure(self, error: Exception) -> None:
        self._main.status.set_activity_text("lists", None)
        self._main.status.flash_message(
            f"cannot read the topics and conversations: {error}", "error"
        )
