"""A new kind of event, with fields, works everywhere after adding one row to the table."""

import json
import os
import subprocess
import sys
from pathlib import Path

from jp_files import ID, Stream, write

# In another process, because modules read the table when they are imported.
_NEW_KIND = """
import sys
from kbtui.conversations.conversation_event_kinds import EVENT_KINDS, ConversationEventKindDefinition

EVENT_KINDS["decision"] = ConversationEventKindDefinition(
    "decision", "verdict", "decisions", "Decision", "chat", fields=("reason", "votes")
)
"""
_CLI = "from kbtui.cli.main import main; sys.exit(main(sys.argv[1:]))"
_READER = """
from datetime import UTC, datetime
from pathlib import Path
from kbtui.conversations.conversation_repository import find_conversation, load_conversation
from kbtui.tui.reader.conversation_document_builder import build_conversation_document as conversation_document
from kbtui.workspace import open_workspace_at_root

conversation = load_conversation(find_conversation(open_workspace_at_root(Path(sys.argv[1])), sys.argv[2]))
assert not conversation.problems, conversation.problems
document = conversation_document(conversation, datetime.now(UTC))
print("\\n".join(block.get_searchable_text() for block in document.blocks))
"""
_SEARCH = """
import json
from pathlib import Path
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.index.index_reader import IndexReader
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.search.search_pipeline import search_index as answer
from kbtui.workspace import Settings, open_workspace_at_root

workspace = open_workspace_at_root(Path(sys.argv[1]))
index = WorkspaceIndexWriter(workspace, Settings())
index.refresh_index()
index.close()
found = answer(workspace, IndexReader(workspace.cache_dir), SearchRequest(sys.argv[2]))
print(json.dumps([(hit.role, hit.turn, hit.text) for hit in found.hits]))
"""
_TOOLS = """
import json
from pathlib import Path
from kbtui.assistant.assistant_tools import TOOLS

print(json.dumps({name: tool.make_arguments_schema() for name, tool in TOOLS.items()}))
"""


def run(program: str, *words: str, table: str = _NEW_KIND) -> str:
    done = subprocess.run(
        [sys.executable, "-c", table + program, *words],
        capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def test_a_row_in_the_table_adds_a_kind_everywhere(jp: Path) -> None:
    stream = Stream().turn().ask("Which store?")
    stream.add("decision", content="We take the turquoise one.", reason="It floats.", votes=[3, 0])
    write(jp, stream.say("Noted."))
    root = ["-w", str(jp.parent)]

    read = json.loads(run(_CLI, *root, "conversation", "read", str(ID), "--json"))
    kinds = [event["event_kind"] for event in read["turns"][0]["events"]]
    assert kinds == ["chat_request", "decision", "message"]
    assert read["hint"] is None
    fields = {"reason": "It floats.", "votes": [3, 0]}
    assert read["turns"][0]["events"][1]["fields"] == fields
    xml = run(_CLI, *root, "conversation", "read", str(ID), "--format", "xml")
    assert '"reason": "It floats."' in xml.partition("<fields>")[2].partition("</fields>")[0]
    only = run(_CLI, *root, "conversation", "read", str(ID), "--include", "decisions")
    assert "Decision" in only
    assert "turquoise" in only
    assert '"reason": "It floats."' in only
    assert "Noted." not in only

    for scope in ("verdict", "chat", "all"):
        found = run(_CLI, *root, "conversation", "grep", "turquoise", "--scope", scope)
        assert found == f"jp-c{ID}:1:verdict:m:We take the turquoise one.\n"
    assert run(_CLI, *root, "conversation", "grep", "turquoise", "--scope", "user") == ""
    found = run(_CLI, *root, "conversation", "grep", "floats")
    assert found == f'jp-c{ID}:1:verdict:m:  "reason": "It floats.",\n'

    exported = run(_CLI, *root, "conversation", "export", str(ID))
    assert "### Decision\n\nWe take the turquoise one.\n\n```json\n{\n" in exported
    assert '"reason": "It floats."' in exported

    # An index that was made without the row is replaced.
    before = json.loads(run(_SEARCH, str(jp.parent), "floats", table="import sys\n"))
    assert "verdict" not in [role for role, _, _ in before]
    found = json.loads(run(_SEARCH, str(jp.parent), "floats role:verdict"))
    text = "We take the turquoise one.\nreason: It floats.\nvotes: [3, 0]"
    assert found == [["verdict", 1, text]]

    shown = run(_READER, str(jp.parent), f"jp-c{ID}")
    assert "We take the turquoise one.\nreason: It floats.\nvotes:\n  - 3\n  - 0" in shown

    tools = json.loads(run(_TOOLS))
    scopes = tools["conversation_grep"]["properties"]["scopes"]["items"]["enum"]
    include = tools["conversation_read"]["properties"]["include"]["items"]["enum"]
    assert "verdict" in scopes
    assert "decisions" in include


def test_without_the_row_the_same_event_is_unknown(jp: Path) -> None:
    write(jp, Stream().turn().ask("Which?").add("decision", content="turquoise"))
    found = run(
        _CLI, "-w", str(jp.parent), "conversation", "grep", "turquoise", table="import sys\n"
    )
    assert found.startswith(f"jp-c{ID}:1:unknown:m:")
