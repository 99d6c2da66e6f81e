"""Topics and their subjects, what `learn` returns, and the `<knowledge>` section of the prompt."""

from kbtui.knowledge.knowledge_loader import KnowledgeBase, load_knowledge, parse_ref_in_workspace
from kbtui.knowledge.subject_files import read_subject_for_assistant, read_subject_text

__all__ = [
    "KnowledgeBase",
    "load_knowledge",
    "parse_ref_in_workspace",
    "read_subject_for_assistant",
    "read_subject_text",
]
