"""Topics and their subjects, what `learn` returns, and the `<knowledge>` section of the prompt.

Each module is imported only when one of its names is first used. A search needs only the small
modules, so it starts faster.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kbtui.knowledge.knowledge_base import KnowledgeBase, load_knowledge
    from kbtui.knowledge.subject_files import read_subject_for_assistant, read_subject_text

__all__ = [
    "KnowledgeBase",
    "load_knowledge",
    "read_subject_for_assistant",
    "read_subject_text",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "subject_files" if name.startswith("read_subject") else "knowledge_base"
    return getattr(import_module(f"kbtui.knowledge.{module}"), name)
