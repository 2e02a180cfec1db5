"""The read operator: scope, legs, fusion, recency slots, explanation. Knows nothing of disk."""

from mempp.recall.hits import Explanation, Hit, LegShare
from mempp.recall.legs import Indexes, Scope
from mempp.recall.operator import read
from mempp.recall.scope import (
    Bounds,
    PermittedRows,
    Question,
    as_of_in,
    check_names,
    check_question,
    is_auto,
    question_text,
    scope_of,
)
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
    "as_of_in",
    "check_names",
    "check_question",
    "is_auto",
    "question_text",
    "read",
    "scope_of",
    "state_of",
]
