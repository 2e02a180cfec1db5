"""What can go wrong in an evaluation, told in one line."""


class EvalError(Exception):
    """The data, the configuration or a result file is at fault; the message says what, where, and what to do."""


class DatasetError(EvalError):
    """A file of a benchmark is missing, damaged, or not in its format."""


class SystemUnavailableError(EvalError):
    """A system cannot be used here, because a package or a key is missing; others can."""


class ModelError(EvalError):
    """A model could not be asked at all: no package, no key, no such model, or it failed after the SDK's retries."""


class RequestFailedError(ModelError):
    """One request failed after the SDK's retries, or was refused by the server; other requests may well succeed."""


class CostLimitReached(EvalError):  # noqa: N818 - it ends a run as it was asked to end; nothing is at fault
    """The next request would exceed `--max-cost`; what was done before is kept."""
