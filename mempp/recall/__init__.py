"""The read operator: scope, legs, fusion, recency slots, explanation. Knows nothing of disk."""

from mempp.recall.hits import Explanation, Hit, LegShare
from mempp.recall.operator import Indexes, Scope, read
from mempp.recall.scope import Bounds, PermittedRows, Question, check_names, check_question, question_text, scope_of
from mempp.recall.states import NO_STATES, StateChange, States, state_of
from mempp.recall.table import Row, RowTable

__all__ = [
    "NO_STATES",
    "Bounds",
    "Explanation",
    "Hit",
    "Indexes",
    "LegShare",
    "PermittedRows",
    "Question",
    "Row",
    "RowTable",
    "Scope",
    "StateChange",
    "States",
    "check_names",
    "check_question",
    "question_text",
    "read",
    "scope_of",
    "state_of",
]
