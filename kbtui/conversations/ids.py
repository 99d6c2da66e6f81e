"""Reading a conversation's id in any of the forms it is written in."""

from kbtui.errors import UsageError
from kbtui.refs import Ref, parse_ref, within


def parse_conversation_id(text: str, workspace: str | None = None) -> str:
    """`jp-c17457886043` for `jp-c17457886043`, `17457886043` and `jp://jp-c17457886043`.

    Turns, selectors and the workspace's own id may follow. Raises as `parse_conversation_ref`.
    """
    conversation = parse_conversation_ref(text, workspace).conversation
    assert conversation is not None
    return conversation


def parse_conversation_ref(text: str, workspace: str | None = None) -> Ref:
    """The same with turn and call, where the text names them.

    `workspace` is this workspace's id, where it has one. Raises `UsageError`, and `NothingFound`
    where the text names another workspace.
    """
    try:
        ref = parse_ref(text)
    except UsageError:
        ref = None
    if ref is None or ref.conversation is None:
        raise UsageError(
            f"{text!r} is not a conversation's id",
            hint="write jp-c17457886043, 17457886043 or jp://jp-c17457886043",
        )
    return within(ref, workspace)
