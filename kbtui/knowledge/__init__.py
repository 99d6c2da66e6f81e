"""Topics, their subjects, what `learn` returns, what `<knowledge>` says: functions over files."""

from kbtui.knowledge.content import read_subject, subject_text
from kbtui.knowledge.knowledge import Knowledge, load_knowledge

__all__ = ["Knowledge", "load_knowledge", "read_subject", "subject_text"]
