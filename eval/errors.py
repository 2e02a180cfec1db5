"""What can go wrong in an evaluation, told in one line.

What can go wrong with a model is Mem++'s own: `mempp.ModelError`, `ModelRequestError`, `CostLimitError`.
"""

from mempp.errors import CostLimitError, MemppError, ModelError, ModelRequestError

__all__ = [
    "FAULTS",
    "CostLimitError",
    "DatasetError",
    "EvalError",
    "ModelError",
    "ModelRequestError",
    "SystemUnavailableError",
    "UsageError",
]


class EvalError(Exception):
    """The data, the configuration or a result file is at fault; the message says what, where, and what to do."""


class UsageError(EvalError):
    """The command was given something that it does not take."""


class DatasetError(EvalError):
    """A file of a benchmark is missing, damaged, or not in its format."""


class SystemUnavailableError(EvalError):
    """A system cannot be used here, because a package or a key is missing; others can."""


FAULTS = (EvalError, MemppError)
"""What ends a command with one line: our own errors, and those of Mem++, its models and their cache among them."""
