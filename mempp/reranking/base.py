"""What a re-ranker is."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray


@runtime_checkable
class Reranker(Protocol):
    """Reads a question together with each text, and says how well the text answers it."""

    def score(self, question: str, texts: Sequence[str]) -> NDArray[Any]:
        """One finite number for each text, in their order, shape (n,); higher is better.

        Any scale will do where the re-ranker decides alone. To be mixed with the scores of legs it should lie in 0…1.
        """
        ...
