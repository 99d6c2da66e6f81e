"""One question, one answer: query, legs, fusion, freshness.

The door is `kbtui.search.pipeline.answer`; what it takes and gives is in `records`.
"""

from kbtui.search.models import Answer, Hit, Question

__all__ = ["Answer", "Hit", "Question"]
