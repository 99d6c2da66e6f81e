"""Answer one call of a JP local tool: JP runs this, with its two JSON arguments.

The outcome goes to stdout as JSON; exit code 0 when the tool succeeded, 1 when not.
"""

from __future__ import annotations

import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui tool` (jp-format 6.1)."""
    parser.add_argument("context", metavar="CONTEXT_JSON", help="action, root, conversation_id")
    parser.add_argument("tool", metavar="TOOL_JSON", help="name, arguments")


def run(args: Namespace) -> int:
    """Print the outcome; the workspace is `context.root`, whatever -w says."""
    from kbtui.assistant.jp_local_tool import outcome

    found = outcome(args.context, args.tool)
    sys.stdout.write(json.dumps(found) + "\n")
    return 0 if found["type"] == "success" else 1
