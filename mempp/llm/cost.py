"""What requests cost, and the limit that is kept.

Before a request is sent, the most that it can cost is reserved: one token for each byte of the prompt (no tokenizer
makes more), and `max_tokens` written, as often as the SDK may send it. When the reply comes, what it did cost takes its
place; an attempt that came to no answer may have been billed, and counts in full.
"""

import json
import math
import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from mempp.errors import CostLimitError, InputError, quoted
from mempp.llm.base import Request, Usage

PRICES_AS_OF = "2026-11-30"
"""The day on which `PRICES` were looked up."""

# What the provider adds around a request: roles, and an instruction of its own for a schema.
_TOKENS_AROUND = 1000
_BYTES_PER_TOKEN = 4
"""Of English text, roughly; for estimates, never for limits."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float
    long_from: int | None = None
    """A prompt of more tokens than this is billed, as a whole and with its reply, at the two prices below."""
    long_input: float = 0.0
    long_output: float = 0.0

    def of(self, usage: Usage) -> float:
        """Returns the cost of one request in US dollars, without discounts for cached prompts."""
        long = self.long_from is not None and usage.input_tokens > self.long_from
        read, written = (self.long_input, self.long_output) if long else (self.input, self.output)
        return (usage.input_tokens * read + usage.output_tokens * written) / 1_000_000


def _openai_long(price_input: float, price_output: float) -> Price:
    return Price(price_input, price_output, 272_000, price_input * 2, price_output * 1.5)


PRICES: Mapping[str, Price] = {
    "gpt-6.2-astra": _openai_long(8, 40),
    "gpt-6.2-sol": _openai_long(2, 10),
    "gpt-6.1-sol": _openai_long(2, 10),
    "gpt-6.1-terra": _openai_long(1, 5),
    "gpt-6-astra": _openai_long(10, 50),
    "gpt-6-sol": _openai_long(2, 10),
    "gpt-6-luna": _openai_long(0.10, 0.50),
    "gpt-5.6-sol": _openai_long(5, 30),
    "gpt-5.6-terra": _openai_long(2, 12),
    "gpt-5.6-luna": _openai_long(0.20, 1.20),
    "gpt-5.5": _openai_long(5, 30),
    "gpt-5.4": _openai_long(2.50, 15),
    "gpt-5.4-mini": Price(0.75, 4.50),
    "gpt-5.4-nano": Price(0.20, 1.25),
    "gpt-5.2": Price(1.75, 14),
    "gpt-5.1": Price(1.25, 10),
    "gpt-5": Price(1.25, 10),
    "gpt-5-mini": Price(0.25, 2),
    "gpt-5-nano": Price(0.05, 0.40),
    "gpt-4.1": Price(2, 8),
    "gpt-4.1-mini": Price(0.40, 1.60),
    "gpt-4.1-nano": Price(0.10, 0.40),
    "gpt-4o": Price(2.50, 10),
    "gpt-4o-mini": Price(0.15, 0.60),
    "o3": Price(2, 8),
    "o4-mini": Price(1.10, 4.40),
    "claude-fable-5-1": Price(10, 50),
    "claude-fable-5": Price(10, 50),
    "claude-opus-5-5": Price(4, 20),
    "claude-opus-5": Price(5, 25),
    "claude-opus-4-8": Price(5, 25),
    "claude-opus-4-7": Price(5, 25),
    "claude-opus-4-6": Price(5, 25),
    "claude-opus-4-5": Price(5, 25),
    "claude-sonnet-5-5": Price(2, 10),
    "claude-sonnet-5": Price(2, 10),
    "claude-sonnet-4-6": Price(3, 15),
    "claude-sonnet-4-5": Price(3, 15),
    "claude-haiku-5-5": Price(0.10, 0.50, 100_000, 0.50, 2.50),
    "claude-haiku-4-5": Price(1, 5),
}
"""List prices of the standard tier. The providers change them: `Budget(prices=…)`, or `--price`, takes others."""

_DATED = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")


def parse_price(text: str) -> tuple[str, Price]:
    """Reads a price as `--price` has it: "IN,OUT" for every model, or "MODEL=IN,OUT"; US dollars per million tokens.

    Returns:
        The model ("" for every model) and its price.

    Raises:
        InputError: it is no such text.
    """
    if not isinstance(text, str):
        raise InputError(f"the price (--price) is {quoted(text)}; give text such as 0.15,0.60")
    model, equals, numbers = text.rpartition("=")
    parts = numbers.split(",")
    try:
        values = [float(part) for part in parts]
    except ValueError:
        values = []
    if len(values) != 2 or not all(math.isfinite(value) and value >= 0 for value in values) or (equals and not model):
        raise InputError(
            f"the price (--price) is {text[:80]!r}; give IN,OUT or MODEL=IN,OUT in US dollars per million tokens, such "
            "as 0.15,0.60"
        )
    return model.strip(), Price(values[0], values[1])


@dataclass(frozen=True, slots=True)
class Reservation:
    """The most that a request may cost, set aside while it is out; None where its price is not known."""

    model: str
    price: Price | None
    most: Usage
    """Of one attempt."""
    attempts: int = 1
    thread: int = field(default_factory=threading.get_ident)
    """Who set it aside."""

    @property
    def cost(self) -> float:
        """US dollars."""
        return self.of_one * self.attempts

    @property
    def of_one(self) -> float:
        """US dollars that one attempt may cost."""
        return self.price.of(self.most) if self.price is not None else 0.0


class Budget:
    """Counts what a run costs, and stops it before a limit. For many threads at once."""

    def __init__(self, max_cost: float | None = None, *, prices: Mapping[str, Price] | None = None) -> None:
        """Prepares a budget.

        Args:
            max_cost: US dollars that may not be exceeded; None for no limit.
            prices: Model → price, before `PRICES`; the model's name with or without "openai:" or "anthropic:" before
                it, or "" for every model that is not named (see `parse_price`).

        Raises:
            InputError: `max_cost` is no number of 0 or more, or `prices` are none.
        """
        number = isinstance(max_cost, int | float) and not isinstance(max_cost, bool)
        if max_cost is not None and not (number and math.isfinite(max_cost) and max_cost >= 0):
            raise InputError(
                f"the limit of the cost (max_cost, --max-cost) is {quoted(max_cost)}; give US dollars, 0 or more"
            )
        if prices is not None and not (
            isinstance(prices, Mapping)
            and all(isinstance(name, str) and isinstance(price, Price) for name, price in prices.items())
        ):
            raise InputError(f"prices is {quoted(prices)}; give a mapping of the model's name to a mempp.llm.Price")
        self._max_cost = max_cost
        self._prices = dict(prices or {})
        self._changed = threading.Condition()
        self._spent = 0.0
        self._uncertain = 0.0
        self._reserved = 0.0
        self._out: Counter[int] = Counter()
        """Thread → how many of its requests are out."""
        self._usage: dict[str, Usage] = {}
        self._unpriced: set[str] = set()

    @property
    def max_cost(self) -> float | None:
        """The limit in US dollars."""
        return self._max_cost

    @property
    def spent(self) -> float:
        """US dollars for the replies that came, as far as prices are known (see `unpriced`)."""
        with self._changed:
            return self._spent

    @property
    def uncertain(self) -> float:
        """At most this much, in US dollars, may have been billed for requests that were never answered."""
        with self._changed:
            return self._uncertain

    @property
    def usage(self) -> dict[str, Usage]:
        """Model → tokens that it was asked for in this run; cached replies are not among them."""
        with self._changed:
            return dict(self._usage)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Models that were asked although their price is not known."""
        with self._changed:
            return tuple(sorted(self._unpriced))

    def price(self, model: str) -> Price | None:
        """Returns the price of a model, with or without its provider's prefix; a dated name has its family's."""
        provider, colon, rest = model.partition(":")
        name = rest if colon and provider in ("openai", "anthropic") else model
        undated = _DATED.sub("", name)
        for known in (self._prices, PRICES):
            for key in (model, name, undated):
                if key in known:
                    return known[key]
            if "" in known:
                return known[""]
        return None

    def check(self, model: str) -> None:
        """Makes sure that a limit can be kept for this model.

        Raises:
            InputError: there is a limit, and no price is known.
        """
        if self._max_cost is not None and self.price(model) is None:
            raise InputError(
                f"no price is known for {model}, so the limit of the cost (max_cost, --max-cost) cannot be kept; give "
                "one (prices of the Budget, --price IN,OUT) in US dollars per million tokens (0,0 for a server of your "
                "own)"
            )

    def reserve(self, model: str, request: Request, attempts: int = 1) -> Reservation:
        """Sets the largest cost of a request aside, for each attempt that the SDK may make. Waits while requests of
        other threads that are out may give some of theirs back; a thread that has one out itself (it asks between two
        pieces of a stream) does not wait, since others may be waiting for it.

        Raises:
            CostLimitError: with nothing else out, the request might still exceed the limit; or it might now, and this
                thread has another one out.
            InputError: as `check`.
        """
        self.check(model)
        reservation = Reservation(model, self.price(model), most_of(request), attempts)
        with self._changed:
            while self._max_cost is not None:
                kept = self._spent + self._uncertain
                if kept + self._reserved + reservation.cost <= self._max_cost:
                    break
                own = self._out[reservation.thread]
                if own or not self._out.total() or kept + reservation.cost > self._max_cost:
                    if reservation.cost > self._max_cost:
                        raise CostLimitError(
                            f"the cost limit of ${self._max_cost:g} {never_suffices(reservation.cost, attempts)}"
                        )
                    out = f", ${self._reserved:.4f} are set aside for requests that are out" if own else ""
                    raise CostLimitError(
                        f"the cost limit of ${self._max_cost:g} is reached: ${kept:.4f} are spent{out}, and the next "
                        f"request to {model} may cost ${reservation.cost:.4f} in {attempts} attempt(s); raise the "
                        "limit (max_cost, --max-cost) or allow fewer repeats (max_retries, --retries) to go on"
                    )
                self._changed.wait()
            self._reserved += reservation.cost
            self._out[reservation.thread] += 1
        return reservation

    def settle(self, reservation: Reservation, usage: Usage | None, lost: int = 0) -> None:
        """Replaces a reservation by what was used, or, where the server did not count, by the most that it may be.
        Attempts that were lost before may have been billed too."""
        with self._changed:
            self._uncertain += reservation.of_one * lost
            billed = reservation.most if usage is None else usage
            if reservation.price is None:
                self._unpriced.add(reservation.model)
            else:
                self._spent += reservation.price.of(billed)
            before = self._usage.get(reservation.model, Usage())
            self._usage[reservation.model] = before + (usage or Usage())
            self._give_back(reservation)

    def unanswered(self, reservation: Reservation, attempts: int) -> None:
        """Keeps a reservation for each attempt that may have been billed although no answer came."""
        with self._changed:
            self._uncertain += reservation.of_one * attempts
            self._give_back(reservation)

    def release(self, reservation: Reservation) -> None:
        """Gives a reservation back: the request was refused, which costs nothing."""
        with self._changed:
            self._give_back(reservation)

    def _give_back(self, reservation: Reservation) -> None:
        self._out[reservation.thread] -= 1
        if not self._out[reservation.thread]:
            del self._out[reservation.thread]
        # Sums of floats drift; with nothing out, nothing is reserved.
        self._reserved = self._reserved - reservation.cost if self._out.total() else 0.0
        self._changed.notify_all()


def most_of(request: Request) -> Usage:
    """The most tokens that one attempt at a request can take: what every limit of the cost sets aside for it."""
    return Usage(_size(request) + _TOKENS_AROUND, request.max_tokens)


def estimate_of(request: Request, written: int) -> Usage:
    """Roughly the tokens that a request takes, for people who want to know before they ask.

    Args:
        request: it; four bytes count as a token.
        written: tokens that the reply may be expected to have.
    """
    return Usage(_size(request) // _BYTES_PER_TOKEN, min(written, request.max_tokens))


def tokens_about(text: str) -> int:
    """Roughly the tokens of a text; for estimates, never for limits."""
    return len(text.encode(errors="surrogatepass")) // _BYTES_PER_TOKEN


def never_suffices(most: float, attempts: int) -> str:
    """What is wrong with a limit that no run gets anywhere with, in words that go on from the limit.

    Args:
        most: US dollars that the next step may cost at most, in all its attempts.
        attempts: how often a request is sent at most.
    """
    fewer = f", or allow no repeats (max_retries, --retries 0; then ${_up(most / attempts)})" if attempts > 1 else ""
    often = f" in {attempts} attempts" if attempts > 1 else ""
    return (
        f"can never suffice: the next step alone may cost ${_up(most)}{often}, and nothing is sent that might exceed "
        f"the limit; give at least that (max_cost, --max-cost){fewer}"
    )


def _up(dollars: float) -> str:
    return f"{(math.floor(dollars * 10_000) + 1) / 10_000:.4f}"  # more than it, whatever the rounding


def _size(request: Request) -> int:
    """Bytes that are sent."""
    size = len(request.system.encode(errors="surrogatepass")) + len(request.prompt.encode(errors="surrogatepass"))
    return size if request.schema is None else size + len(json.dumps(request.schema))
