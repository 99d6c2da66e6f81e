"""Topics and their subjects, what `learn` returns, and the `<knowledge>` section of the prompt."""

from kbtui.knowledge.knowledge_loader import KnowledgeBase, load_knowledge
from kbtui.knowledge.subject_files import read_subject_for_assistant, read_subject_text

__all__ = [
    "KnowledgeBase",
    "load_knowledge",
    "read_subject_for_assistant",
    "read_subject_text",
]
