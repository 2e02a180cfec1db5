"""The three indexes, and the optional one of fact cards.

Each ranks row ids inside an allowed-id bitset, and knows nothing of disk or of the others.

What all three share:

- The scope of a question is a Boolean array `allowed`, one value per row that the question may know of. An index may
  already hold later rows, because another thread is adding; rows from `len(allowed)` on do not exist for the question.
- One thread adds at a time (the caller holds a lock). Any number of threads rank at the same time, without a lock.
- A row's score depends on the question and on the rows in scope, on nothing else: what is added later, or lies
  outside the scope, changes neither scores nor order. (Beyond a size the vector index approximates; see there.)
- Ties are broken by row id, later rows first.
"""

from mempp.indexes.cards import CardIndex
from mempp.indexes.hnsw import ExactSearchWarning
from mempp.indexes.lexical import LexicalIndex
from mempp.indexes.ranking import Allowed, Ranking
from mempp.indexes.tags import TagIndex
from mempp.indexes.vectors import VectorIndex

__all__ = ["Allowed", "CardIndex", "ExactSearchWarning", "LexicalIndex", "Ranking", "TagIndex", "VectorIndex"]
