"""Markdown and plain text: the file is the document."""

from typing import BinaryIO

from mempp.cli.sources import Fault, Found, Reading, not_utf8


def read_text(stream: BinaryIO, name: str) -> Reading:
    """Yield one document: the whole text byte for byte, line ends too, its path as source.

    A leading byte order mark is dropped: it says how the file is encoded and is no part of the text.
    """
    data = stream.read()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line_start = data.rfind(b"\n", 0, error.start) + 1
        line = data.count(b"\n", 0, error.start) + 1
        reason = not_utf8(error.start - line_start, data[error.start])
        yield Fault(f"{name}:{line}", reason, len(data))
        return
    yield Found(name, {"text": text.removeprefix("\ufeff")}, len(data), "file")
