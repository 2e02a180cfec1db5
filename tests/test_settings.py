import copy
import dataclasses
import pickle

import pytest

import mempp
from mempp.errors import InputError
from mempp.settings import NAMES, PRESETS, Settings, from_environment, layered


def test_layers_field_by_field():
    call = Settings(k=3)
    opened = Settings(k=7, gamma=10.0)
    environment = from_environment({"MEMPP_K": "9", "MEMPP_GAMMA": "20", "MEMPP_CANDIDATES": "30"})
    merged = layered(None, call, opened, environment)
    assert (merged.k, merged.gamma, merged.candidates, merged.weight_lexical) == (3, 10.0, 30, 1.5)


def test_what_was_given_survives_copies():
    settings = Settings(k=5)
    for one in (copy.copy(settings), copy.deepcopy(settings), pickle.loads(pickle.dumps(settings))):
        assert one == settings
        assert one.given == {"k"}
    assert dataclasses.replace(settings, gamma=1.0).given == set(NAMES)


def test_defaults():
    settings = Settings()
    assert settings.k == 24
    assert settings.given == frozenset()
    assert [Settings(k=k).slots for k in (1, 3, 4, 8, 11, 12, 50)] == [0, 0, 1, 2, 2, 3, 3]
    assert Settings(k=2, recency_slots=3).slots == 2


def test_presets_are_the_papers_table_6_and_give_every_field():
    table = {"orgmembench": (4.0, 50, "all"), "locomo": (2.0, 200, "any"), "longmemeval": (4.0, 50, "all")}
    assert set(PRESETS) == set(table)
    for name, (weight_vector, candidates, mode) in table.items():
        one = mempp.preset(name)
        assert (one.weight_lexical, one.weight_tags, one.weight_vector) == (1.0, 1.0, weight_vector)
        assert (one.candidates, one.lexical_mode, one.k, one.gamma, one.slots) == (candidates, mode, 50, 60.0, 3)
        assert (one.ties, one.undated, one.fill, one.packing) == ("ingest", "ingest", True, "stop")
        assert one.given == set(NAMES)
        assert layered(one, from_environment({"MEMPP_GAMMA": "1"})) == one


def test_unknown_preset():
    with pytest.raises(InputError, match=r"'nope'.*orgmembench"):
        mempp.preset("nope")


@pytest.mark.parametrize(
    "values",
    [
        {"k": 0}, {"k": -1}, {"k": 1.5}, {"k": True}, {"k": "5"}, {"candidates": 0}, {"recency_slots": -1},
        {"weight_vector": -0.1}, {"weight_tags": float("nan")}, {"weight_lexical": float("inf")}, {"gamma": 0},
        {"gamma": -1}, {"context": 21}, {"lexical_mode": "some"}, {"ties": None}, {"packing": ""}, {"fill": 1},
        {"exact": "yes"},
    ],
)  # fmt: skip
def test_impossible_values(values):
    with pytest.raises(InputError) as caught:
        Settings(**values)
    assert next(iter(values)) in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_environment():
    given = from_environment({"MEMPP_K": " 5 ", "MEMPP_LEXICAL_MODE": "ALL", "MEMPP_FILL": "yes", "MEMPP_GAMMA": ""})
    assert given.given == {"k", "lexical_mode", "fill"}
    assert (given.k, given.lexical_mode, given.fill) == (5, "all", True)
    for name, text in {"MEMPP_K": "many", "MEMPP_FILL": "perhaps", "MEMPP_GAMMA": "0", "MEMPP_TIES": "x"}.items():
        with pytest.raises(InputError, match="MEMPP_"):
            from_environment({name: text})


def test_a_misspelt_variable_is_a_warning():
    with pytest.warns(UserWarning, match="MEMPP_CONTXT means nothing to mempp; did you mean MEMPP_CONTEXT") as caught:
        from_environment(
            {"MEMPP_CONTXT": "3", "MEMPP_CACHE": "x", "MEMPP_ENCODER": "none", "PATH": "", "MEMPP_MODEL": "m"}
        )
    assert len(caught) == 1


def test_not_settings():
    with pytest.raises(InputError, match="dict"):
        layered({"k": 5})
