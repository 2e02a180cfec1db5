"""An end to waiting for the head of an answer.

The HTTP client gives each read its timeout, and `mempp.remote` gives the body of an answer an end. What comes before
the body has none: a server that sends its header byte by byte, or interim answers (102) again and again, is waited for
without end. There is no place inside the client to count that time, so it is counted outside: a thread waits for the
head, and whoever asked waits for the thread.
"""

import queue
import sys
import threading
from contextvars import copy_context
from typing import Any

from mempp.waiting import taken


def with_head_limit(client: Any, timeout: float) -> Any:
    """Returns an HTTP client whose `send` waits at most so many seconds for the head of an answer, in whole.

    The SDK takes it for a timeout like any other. A head that comes later is thrown away; the thread that waits for it
    ends with it, or when the client is closed.

    Args:
        client: an HTTP client as an SDK takes it; changed in place.
        timeout: seconds.
    """
    plain_send = client.send

    def send(request: Any, *, stream: bool = False, **more: Any) -> Any:
        came: queue.SimpleQueue[Any] = queue.SimpleQueue()
        guard, given_up = threading.Lock(), threading.Event()

        def wait() -> None:
            try:
                outcome = plain_send(request, stream=True, **more)
            except BaseException as error:  # raised where it was asked
                outcome = error
            with guard:
                if not given_up.is_set():
                    came.put(outcome)
                    return
            if not isinstance(outcome, BaseException):
                outcome.close()

        threading.Thread(target=copy_context().run, args=(wait,), daemon=True).start()
        try:
            outcome = taken(came, timeout)
        except BaseException as error:  # an interrupt too
            with guard:
                given_up.set()
                late = None if came.empty() else came.get()
            if late is not None and not isinstance(late, BaseException):
                late.close()
            if not isinstance(error, queue.Empty):
                raise
            # Whichever release of httpx the SDK uses, it tells timeouts by its own class.
            http = sys.modules[type(request).__module__.partition(".")[0]]
            raise http.ReadTimeout("the head of the answer was not whole in time", request=request) from None
        if isinstance(outcome, BaseException):
            raise outcome
        if not stream:
            try:
                outcome.read()
            except BaseException:
                outcome.close()
                raise
        return outcome

    client.send = send
    return client
