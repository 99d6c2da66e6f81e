"""Topics and their subjects, what `learn` returns, and the `<knowledge>` section of the prompt."""

from kbtui.knowledge.loader import Knowledge, load_knowledge, resolve_ref
from kbtui.knowledge.subject_files import read_subject, read_subject_text

__all__ = ["Knowledge", "load_knowledge", "read_subject", "read_subject_text", "resolve_ref"]
