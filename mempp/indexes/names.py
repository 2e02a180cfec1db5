"""Short forms of authors' names: "Ethan", "Brooks", "E. Brooks" and "Ethan B." for "Ethan Brooks".

A short form counts only where it is the form of one person alone among the authors of the rows in scope, so that what
is out of scope changes nothing. A longer form takes its words: "Aisha Patel" does not bring in Maya Patel. Spellings
that agree in given and family name are one person: "Ethan Brooks", "Brooks, Ethan" and "ethan.brooks@helix.com".
Authors that are no people ("Finance Team", "board") have no short forms. Nor have names in scripts without capitals,
which are what tells a name here: Chinese, Japanese, Korean, Arabic, Hebrew, Indic scripts; they are found in full.
Whether a word that is also an English word is meant as a name is for `mempp.indexes.capitals` to say.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

from mempp.indexes.analysis import words
from mempp.indexes.capitals import TITLES, Capitals
from mempp.indexes.growable import GrowableArray
from mempp.indexes.postings import Postings, spread
from mempp.indexes.stopwords import STOP_WORDS

_OFFICES = """
    account accounts admin administration administrator agent analytics api app assistant audit automation backend board
    bot billing business care centre center channel club committee commission communications company compliance corp
    corporation council customer data department desk dev developer developers devops director directors division
    engineering executive facilities finance founder founders frontend general gmbh group growth head help helpdesk hr
    human inc info infrastructure internal it lab labs leadership lead legal limited list llc ltd mail mailer management
    manager managers marketing members minutes network news newsletter noreply office officer operations ops
    organisation organization partner partners payroll people platform press procurement product project public
    quality relations release reply research resources response sales security senior service services shared staff
    steering support system systems task team tech technology test testing the tools training unit vendor warehouse web
    working works
"""
_NO_PERSON = frozenset(_OFFICES.split())
"""Words of labels that name an office, a team or a machine."""
_AFTER_NAMES = frozenset(("jr", "sr", "ii", "iii", "iv", "phd", "md", "esq", "mba", "cpa"))

_ADDRESS = re.compile(r"([^@\s<>]+)@[^@\s<>]+")
_LOGIN = re.compile(r"[^\W\d_]+(?:[._][^\W\d_]+)+|[^\W\d_]{2,}(?:-[^\W\d_]{2,})+")
_BETWEEN_PARTS = re.compile(r"[._+\-]+|\d+")
_REMARK = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
_LONGEST_NAME = 5  # parts
_LONGEST_FORM = 16  # words; a label of more is named in no question
_LONGEST_LABEL = 500  # characters; a longer one is no name
_TRIED_ONE_BY_ONE = 8  # spellings of one form; of more, those in scope are found in one pass over all rows


class NameForms:
    """The short forms of the authors of rows. One thread adds; others ask without a lock."""

    def __init__(self) -> None:
        self._n_rows = 0
        # By spelling, not by words: "Ethan Brooks" and "ethan brooks" have the same words, but only one of them has
        # short forms, and what a row out of scope spells must not give any to a row in scope.
        self._rows_of = Postings()
        self._persons_of: dict[str, dict[str, list[str]]] = {}  # form → person → spellings
        self._keys: dict[str, str] = {}  # spelling → its words, joined by spaces
        self._numbers: dict[str, int] = {}  # spelling → number, in the order of their coming
        self._authorships: GrowableArray[np.uint32] = GrowableArray(np.uint32, 2)  # row, number of one of its authors
        self._sizes: dict[str, tuple[int, ...]] = {}  # first word of a form → in how many words forms come

    def add_rows(self, authors: Sequence[Sequence[str]]) -> None:
        """Add the authors of the next rows: one list each, in step with `TagIndex.add`."""
        # Most rows have the authors of a row before them, so what follows of these is made once for all such rows.
        of_rows = list(map(tuple, authors))
        kinds = {together: kind for kind, together in enumerate(dict.fromkeys(of_rows))}
        kind_of = np.fromiter(map(kinds.__getitem__, of_rows), np.int64, len(of_rows))
        for author in chain.from_iterable(kinds):
            if author not in self._keys:
                self._note(author)
        self._rows_of.add_alike(self._n_rows, [dict.fromkeys(together, 1) for together in kinds], kind_of)
        sizes = np.fromiter(map(len, kinds), np.int64, len(kinds))
        numbers = np.array([self._numbers[author] for author in chain.from_iterable(kinds)], np.uint32)
        if len(numbers):
            places = spread(np.cumsum(sizes) - sizes, sizes, kind_of)
            authorships = np.empty((len(places), 2), np.uint32)
            authorships[:, 0] = np.repeat(np.arange(self._n_rows, self._n_rows + len(of_rows)), sizes[kind_of])
            authorships[:, 1] = numbers[places]
            self._authorships.extend(authorships)
        self._n_rows += len(of_rows)

    def _note(self, author: str) -> None:
        label = words(author)
        key = " ".join(label)
        forms = short_forms(author)
        person = forms[0] if forms else key
        # Before the forms: whoever meets an author there looks for both here.
        self._keys[author] = key
        self._numbers[author] = len(self._numbers)
        if len(label) <= _LONGEST_FORM and not STOP_WORDS.issuperset(label):
            # The whole label is a form as well: another author of that name makes it the name of two.
            forms = list(dict.fromkeys((*forms, key)))
        for form in forms:
            first, *rest = form.split(" ")
            persons = self._persons_of.setdefault(form, {})
            # Lists only grow, since other threads go through them; of the table they take a copy.
            persons.setdefault(person, []).append(author)
            sizes = self._sizes.get(first, ())
            if 1 + len(rest) not in sizes:
                self._sizes[first] = (*sizes, 1 + len(rest))

    def found(
        self,
        question: str,
        asked: Sequence[str],
        exact: Iterable[tuple[int, int]],
        allowed: NDArray[np.bool_],
    ) -> dict[str, list[NDArray[np.uint32]]]:
        """The labels whose authors a question names by a form of their names, and rows in scope.

        Longest first, each word of the question is used once; among forms of a length, labels named in full go first,
        then what stands further left.

        Args:
            question: any string.
            asked: its words.
            exact: where labels in scope, authors or tags, are named in full: first word and how many words.
            allowed: the scope, shape (n_rows,).

        Returns:
            Label, as its words joined by spaces → for each spelling of it the rows in scope, ascending, never none.
        """

        @cache
        def rows_of(author: str) -> NDArray[np.uint32]:
            rows, _ = self._rows_of.find(author, len(allowed))
            return rows[allowed[rows]]

        @cache
        def present() -> NDArray[np.bool_]:
            return self._present(allowed)

        def in_scope(author: str, thoroughly: bool) -> bool:
            if not thoroughly:
                return len(rows_of(author)) > 0
            number = self._numbers[author]  # above all of these when the author came meanwhile
            return number < len(present()) and bool(present()[number])

        capitals = Capitals(question)

        @cache
        def named_by(form: str) -> list[str] | None:
            return self._named_by(form, in_scope, capitals)

        by_size: dict[int, tuple[list[int], list[int]]] = {}  # size → where labels in full start, where forms start
        for start, size in exact:
            by_size.setdefault(size, ([], []))[0].append(start)
        for start, word in enumerate(asked):
            for size in self._sizes.get(word, ()):
                if start + size <= len(asked) and " ".join(asked[start : start + size]) in self._persons_of:
                    by_size.setdefault(size, ([], []))[1].append(start)
        taken = bytearray(len(asked))
        authors: dict[str, None] = {}
        for size in sorted(by_size, reverse=True):
            in_full, as_form = by_size[size]
            free = {start for start in (*in_full, *as_form) if not any(taken[start : start + size])}
            for start in in_full:
                taken[start : start + size] = b"\1" * size
            named_in_full = set(in_full)
            for start in as_form:
                # A label in full may be a form as well: of an author who has another spelling, or beside a tag.
                if start not in free or (start not in named_in_full and any(taken[start : start + size])):
                    continue
                if size == 1 and start and capitals.has_initial(asked[start - 1], asked[start]):
                    continue  # "J. Brooks" is not Ethan, of whom "E. Brooks" is a form
                named = named_by(" ".join(asked[start : start + size]))
                if named is not None:
                    taken[start : start + size] = b"\1" * size
                    authors |= dict.fromkeys(named)
        labels: dict[str, list[NDArray[np.uint32]]] = {}
        for author in authors:
            labels.setdefault(self._keys[author], []).append(rows_of(author))
        return labels

    def _named_by(self, form: str, in_scope: Callable[[str, bool], bool], capitals: Capitals) -> list[str] | None:
        """The spellings in scope of the one person with this form; none where several have it; None for no name."""
        named: list[str] | None = None
        tried = count()
        for spellings in list(self._persons_of[form].values()):  # a copy, in one step under the lock
            of_person = [author for author in spellings if in_scope(author, next(tried) >= _TRIED_ONE_BY_ONE)]
            if not of_person:
                continue
            if named is not None:
                named = []  # of several people it names none, but its words are those of a name all the same
                break
            named = of_person
        return named if named is None or capitals.allow(form) else None

    def _present(self, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which authors, by number, have rows in scope."""
        authorships = self._authorships.values
        n_before = int(np.searchsorted(authorships[:, 0], len(allowed)))
        rows, numbers = authorships[:n_before].T
        present = np.zeros(len(self._numbers), np.bool_)
        present[numbers[allowed[rows]]] = True
        return present


def short_forms(author: str) -> list[str]:
    """The forms by which a person may be named, each as words joined by spaces; none for what is no person's name.

    The first one tells the person: given and family name, or the one name that stands with a title.
    """
    parts = _parts(author)
    if parts is None:
        return []
    if len(parts) == 1:
        return parts
    given, middle, family = parts[0], parts[1:-1], parts[-1]
    forms = [f"{given} {family}", given, family, f"{family} {given}"]
    if len(family) > 1:
        forms.append(f"{given[0]} {family}")
    if len(given) > 1:
        forms.append(f"{given} {family[0]}")  # of "E. Brooks" the bare initials "E. B." are no form
    if middle:
        initials = " ".join(part[0] for part in middle)
        forms += [" ".join(parts), f"{given} {initials} {family}", f"{given[0]} {initials} {family}"]
    return [form for form in dict.fromkeys(forms) if len(form) > 1]


def _parts(author: str) -> list[str] | None:
    """Given name, middle names, family name, each as words joined by spaces; None for what is no person's name."""
    if len(author) > _LONGEST_LABEL:
        return None
    text = _REMARK.sub(" ", author.split("<")[0]).strip() or author
    address = _ADDRESS.search(text)
    login = address[1] if address is not None else text if text.islower() and _LOGIN.fullmatch(text) else None
    if login is not None:
        text = " ".join(_BETWEEN_PARTS.split(login)).title()
    before, comma, after = text.partition(",")
    if comma:
        # "Brooks, Ethan" and "van Beethoven, Ludwig", but "Ethan Brooks, CFO" and "Brooks, MD".
        family_first = len(before.split()) == 1 or before.lstrip()[:1].islower()
        text = f"{after} {before}" if family_first and "," not in after else before
    spelt = [(part, words(part)) for part in text.split()]
    named = [(part, found) for part, found in spelt if not TITLES.issuperset(found)]
    titled = len(named) < len(spelt)
    named = [(part, found) for part, found in named if not _AFTER_NAMES.issuperset(found)]
    if not (1 if titled else 2) <= len(named) <= _LONGEST_NAME:
        return None
    if not (named[0][0][0].isupper() and named[-1][0][0].isupper()):
        return None
    if any(word in _NO_PERSON or not word.isalpha() for _, found in named for word in found):
        return None
    return [" ".join(found) for _, found in named]
