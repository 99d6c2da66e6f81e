"""Reading a conversation's id in any of the forms it is written in."""

from kbtui.errors import UsageError
from kbtui.refs import Ref, parse_ref


def parse_conversation_id(text: str) -> int:
    """The id in `jp-c17457886043`, `17457886043`, `jp://jp-c17457886043` (decisions B7).

    Turns, workspace suffixes and selectors may follow. Raises `UsageError`.
    """
    conversation = parse_conversation_ref(text).conversation
    assert conversation is not None
    return conversation


def parse_conversation_ref(text: str) -> Ref:
    """The same with turn and call, where the text names them; raises `UsageError`."""
    try:
        ref = parse_ref(text)
    except UsageError:
        ref = None
    if ref is None or ref.conversation is None:
        raise UsageError(
            f"{text!r} is not a conversation's id",
            hint="write jp-c17457886043, 17457886043 or jp://jp-c17457886043",
        )
    return ref
