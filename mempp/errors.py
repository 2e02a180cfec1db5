"""Everything that Mem++ raises on purpose.

    MemppError
    ├── InputError (ValueError)          an argument or a document is not usable
    │   ├── InvalidDateError             a date that is no date
    │   └── RowNotFoundError (LookupError)  no row of that number
    ├── StoreError                       the record on disk
    │   ├── NotAStoreError               the path holds something else
    │   ├── StoreVersionError            written by a newer format
    │   ├── StoreDamagedError            bytes are missing or altered
    │   ├── StoreLockedError             another process holds the commit lock
    │   ├── StoreReadOnlyError           opened, or mounted, for reading only
    │   ├── StoreWriteError              the disk refused a write
    │   └── StoreClosedError             used after close()
    ├── EncoderError                     text could not be turned into vectors
    │   ├── EncoderMismatchError         the store's vectors came from another encoder
    │   └── EncoderUnavailableError      weights, files or an extra are missing
    └── ModelError                       a language model cannot be asked: no package, no key, no such model
        ├── ModelRequestError            one request failed after the retries; others may succeed
        ├── ModelReplyError              it declined, or what it said is of no use
        └── CostLimitError               the next request might exceed the limit of the cost; it was not sent

Each message says what was wrong, with which value, and what to do. Faults of tantivy, hnswlib, onnxruntime, pyarrow,
the SDKs of the models and the operating system are translated where storage, indexes, encoders and llm meet them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


def quoted(value: object, limit: int = 80) -> str:
    """A value for an error message: its `repr`, cut to `limit` characters. It never fails, and never takes long."""
    try:
        # A text may be 50 MB: it is cut before repr, which would copy all of it.
        text = repr(value[: limit + 1] if isinstance(value, str | bytes) else value)
    except Exception:  # an integer of more than 4,300 digits, a repr of the caller's that raises
        return f"a value of type {type(value).__name__} that cannot be shown"
    return text if len(text) <= limit else text[: limit - 1] + "…"


class MemppError(Exception):
    """Base of every error that Mem++ raises on purpose.

    Attributes:
        report: where it ended `consolidate`, `extract_facts` or `build_graph`: what was done and spent before, which
            stands, as the `ConsolidationReport` or `ExtractionReport` that the call would have returned. Else None.
    """

    report: "Any" = None


class InputError(MemppError, ValueError):
    """An argument, a setting or a document is not usable as it is."""


class InvalidDateError(InputError):
    """A value that should be a date is none."""


class RowNotFoundError(InputError, LookupError):
    """No row has this number."""


class StoreError(MemppError):
    """The record on disk is at fault."""


class NotAStoreError(StoreError):
    """The path holds something that is no Mem++ store."""


class StoreVersionError(StoreError):
    """The store was written in a format that this version does not know."""


class StoreDamagedError(StoreError):
    """Bytes of the store are missing, altered or out of order."""


class StoreLockedError(StoreError):
    """Another process held the commit lock for longer than the time limit."""


class StoreReadOnlyError(StoreError):
    """A write was asked of a store that can only be read."""


class StoreWriteError(StoreError):
    """The operating system refused a write; what was acknowledged before is still there."""


class StoreClosedError(StoreError):
    """The memory was used after close()."""


class EncoderError(MemppError):
    """Text could not be turned into vectors."""


class EncoderMismatchError(EncoderError):
    """The store's vectors were made by another encoder."""


class EncoderUnavailableError(EncoderError):
    """The encoder's weights, files or packages are not installed."""


class ModelError(MemppError):
    """A language model could not be asked at all: no package, no key, no such model, an empty account."""


class ModelRequestError(ModelError):
    """One request failed after the SDK's retries, or was refused by the server; other requests may well succeed."""


class ModelReplyError(ModelError):
    """The model declined to answer, or its reply is of no use."""


class CostLimitError(ModelError):
    """The next request might exceed the limit of the cost; it was not sent, and what was done before is kept."""
