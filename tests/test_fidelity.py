import fidelity
import pytest

import mempp


def test_the_preset_finds_what_the_authors_engine_finds(orgmembench):
    with mempp.in_memory() as memory:
        documents = fidelity.documents(orgmembench)
        questions = fidelity.questions(orgmembench)
        assert (len(documents), len(questions)) == (443, 39)
        memory.add_many(documents)
        measured = fidelity.measure(memory, questions)
        for name, expected in fidelity.AUTHORS_ENGINE.items():
            assert measured[name] == pytest.approx(expected, abs=0.005), name
        assert measured["lexical"] == 0
