"""What a user of `mempp` may rely on, on disk and in memory."""

import os
import signal
import threading
import time
from datetime import UTC, date, datetime
from enum import Enum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import WordEncoder

import mempp
from mempp.recall import Hit


@pytest.fixture(params=["disk", "memory"])
def memory(request, tmp_path):
    encoder = WordEncoder()
    made = (
        mempp.open(tmp_path / "store", encoder=encoder) if request.param == "disk" else mempp.in_memory(encoder=encoder)
    )
    with made:
        yield made


def vpn(memory):
    memory.add("VPN runs on Vendor A.", occurred_at="2023-12-28", author="it", tags=["vpn", "vendor-a"])
    memory.add("We keep Vendor A for the VPN.", occurred_at="2024-01-09", author="it", tags=["vpn", "vendor-a"])
    memory.add("Board approved Vendor B.", occurred_at="2025-03-27", author="board", tags=["vpn", "vendor-b"])
    memory.add("Vendor B is now live for the VPN.", occurred_at="2025-09-09", author="it", tags=["vpn", "vendor-b"])
    return memory


def rows(hits: list[Hit]) -> set[int]:
    return {hit.row_id for hit in hits if hit.matched}  # slots may be filled up with rows that nothing matched


def test_the_answer_depends_on_the_date(memory):
    vpn(memory)
    question = "Which VPN vendor do we use?"
    assert rows(memory.recall(question)) == {0, 1, 2, 3}
    assert rows(memory.recall(question, as_of="2024-06-01")) == {0, 1}
    assert rows(memory.recall(question, as_of=date(2024, 1, 8))) == {0}
    assert memory.recall(question, as_of="2023-12-27") == []
    assert rows(memory.recall(question, since="2025-01-01")) == {2, 3}


def test_every_filter_takes_one_or_many_case_folded(memory):
    memory.add(
        "alpha one", author=["Ann Lee", "Bo"], tags="Ops", source="Mail-1", thread="T", metadata={"p": 1, "x": "Y"}
    )
    memory.add("alpha two", author="bo", tags=["ops", "it"], source="mail-2", metadata={"p": 2})
    memory.add("alpha three", occurred_at="2024-01-01")
    ask = memory.recall
    assert rows(ask("alpha", author="BO")) == {0, 1}
    assert rows(ask("alpha", author=["ann lee", "nobody"])) == {0}
    assert rows(ask("alpha", tags=["IT"])) == {1}
    assert rows(ask("alpha", source=["MAIL-1", "mail-2"])) == {0, 1}
    assert rows(ask("alpha", thread="t")) == {0}
    assert rows(ask("alpha", where={"p": [1, 2], "x": "y"})) == {0}
    assert rows(ask("alpha", where={"p": None})) == {2}
    assert rows(ask("alpha", rows={1, 2, 99})) == {1, 2}
    assert rows(ask("alpha", rows=lambda record: "two" in record.text)) == {1}
    assert rows(ask("alpha", rows=np.array([0]))) == {0}
    assert ask("alpha", author=[]) == []
    assert ask("alpha", rows=[]) == []


def test_repeats_and_empty_texts(memory):
    first = memory.add("all green", occurred_at="2024-03-01", author="ops")
    assert (first.added, first.row_id) == (1, 0)
    again = memory.add("all green", occurred_at="2024-03-01", author="ops")
    assert (again.added, again.repeated, again.row_id) == (0, 1, 0)
    assert memory.add("all green", occurred_at="2024-06-01", author="ops").row_id == 1
    assert memory.add("all green", occurred_at="2024-03-01", author="ops", thread="t").row_id == 2
    assert memory.add("all green").row_id == 3
    assert memory.add(" \n\t\u3000").row_ids == (None,)
    report = memory.add_many(["new", "", "all green", "new"])
    assert (report.row_ids, report.new_row_ids) == ((4, None, 3, 4), (4,))
    assert (report.added, report.repeated, report.empty) == (1, 2, 1)
    assert len(memory) == 5


def test_a_retracted_row_is_still_a_repeat(memory):
    memory.add("a secret")
    memory.retract(0, reason="confidential")
    assert memory.add("a secret").row_id == 0
    assert memory.recall("secret") == []
    assert memory.get(0).state.reason == "confidential"


def test_the_papers_rule_of_repeats():
    with mempp.in_memory(encoder="none", repeats="paper") as memory:
        memory.add("all green", occurred_at="2024-03-01", author="ops")
        assert memory.add("all green", occurred_at="2024-06-01", author="ops", thread="t").row_id == 0
        memory.retract(0)
        assert memory.add("all green", author="ops").row_id == 1


def test_a_record_comes_back_as_it_went_in(memory):
    document = mempp.Document(
        text="  Zeile\r\nمرحبا 東京\x00\u2028 ",
        occurred_at=datetime(2024, 5, 1, 12, tzinfo=UTC),
        author=[" Ann ", "Bo", "Ann"],
        tags=("x", "x", ""),
        source="s",
        thread="t",
        kind="mail",
        metadata={"a": [1, {"b": None}], "ü": 1.5},
    )
    row = memory.add(document).row_id
    record = memory.get(row)
    assert record.text == document.text
    assert (record.authors, record.author, record.tags) == (("Ann", "Bo"), "Ann", ("x",))
    assert (record.source, record.thread, record.kind) == ("s", "t", "mail")
    assert record.metadata == {"a": [1, {"b": None}], "ü": 1.5}
    assert record.occurred_at == document.occurred_at
    assert record.state.status == "active"
    assert memory.records() == [record]


def test_states(memory):
    vpn(memory)
    memory.supersede(0, by=2)
    state = memory.get(0).state
    assert (state.status, state.by, state.since) == ("superseded", 2, datetime(2025, 3, 27, tzinfo=UTC))
    assert 0 in rows(memory.recall("vendor"))
    then = {record.row_id: record.state.status for record in memory.records(as_of="2024-06-01")}
    assert then == {0: "active", 1: "active"}
    memory.archive([0, 1], into=3)
    assert rows(memory.recall("vendor")) == {2, 3}
    assert memory.get(1).state.into == 3
    memory.reinstate(1)
    assert memory.get(1).state == mempp.State()
    with pytest.raises(mempp.InputError, match="circle"):
        memory.supersede(2, by=0)
    with pytest.raises(mempp.InputError, match="circle"):
        memory.supersede(1, by=1)
    with pytest.raises(mempp.InputError, match="into itself"):
        memory.archive([1, 2], into=2)
    with pytest.raises(mempp.InputError, match="reinstate it"):
        memory.archive(1, into=0)
    with pytest.raises(mempp.InputError, match="at least one"):
        memory.archive([], into=2)
    for bad in (-1, 4, 10**12):
        with pytest.raises(mempp.RowNotFoundError, match=f"no row {bad}"):
            memory.retract(bad)
    for bad in ("0", 1.0, True, None):
        with pytest.raises(mempp.InputError, match="row id"):
            memory.get(bad)


def test_annotations_are_no_rows(memory):
    memory.add("a fact")
    before = memory.annotate(0, "fact", {"value": 1}, text="one")
    memory.annotate(0, "triple", ["a", "b", "c"])
    assert len(memory) == 1
    assert [one.payload for one in memory.annotations(0)] == [{"value": 1}, ["a", "b", "c"]]
    assert [one.kind for one in memory.annotations(kind="triple")] == ["triple"]
    assert [one.text for one in memory.annotations(known_at=before)] == ["one"]
    with pytest.raises(mempp.InputError, match="payload is not JSON"):
        memory.annotate(0, "fact", {"when": date(2024, 1, 1)})


def test_known_at(memory):
    memory.add("alpha")
    first = memory.head_sequence
    moment = memory.get(0).ingested_at
    memory.add("alpha beta")
    memory.retract(0)
    assert rows(memory.recall("alpha")) == {1}
    assert rows(memory.recall("alpha", known_at=first)) == {0}
    assert rows(memory.recall("alpha", known_at=moment)) == {0}
    assert rows(memory.recall("alpha", known_at=moment.date())) == {1}
    assert memory.recall("alpha", known_at=-1) == []
    assert memory.recall("alpha", known_at="2020-01-01") == []
    assert memory.get(0).ingested_at < memory.get(1).ingested_at


def test_recall_many_is_recall_on_one_state(memory):
    vpn(memory)
    questions = ["vpn", "board", "live"]
    assert memory.recall_many(questions, k=2) == [memory.recall(question, k=2) for question in questions]
    assert memory.recall_many([]) == []
    with pytest.raises(mempp.InputError, match="use recall"):
        memory.recall_many("vpn")


def test_settings_of_call_memory_and_argument(memory):
    for n in range(30):
        memory.add(f"alpha {n}")
    assert len(memory.recall("alpha")) == 24
    assert len(memory.recall("alpha", settings=mempp.Settings(k=5))) == 5
    assert len(memory.recall("alpha", k=2, settings=mempp.Settings(k=5))) == 2
    assert len(memory.recall("alpha", settings=mempp.preset("locomo"))) == 30


def test_the_environment_is_the_layer_below_open(monkeypatch):
    monkeypatch.setenv("MEMPP_K", "2")
    monkeypatch.setenv("MEMPP_ENCODER", "none")
    with mempp.in_memory(settings=mempp.Settings(gamma=1.0)) as memory:
        memory.add_many(["a b", "a c", "a d"])
        assert memory.encoder is None
        assert len(memory.recall("b c d")) == 2
        assert memory.settings.gamma == 1.0


def test_explanations_add_up(memory):
    vpn(memory)
    for hit in memory.recall("Which VPN did the board choose from vendor B?", settings=mempp.preset("locomo")):
        explanation = hit.explain()
        assert sum(leg.added for leg in explanation.legs) == pytest.approx(hit.score)
        assert hit.matched == bool(explanation.legs)
        assert all(leg.added == leg.weight / (explanation.gamma + leg.rank) for leg in explanation.legs)
        assert {leg.leg for leg in explanation.legs} <= {"lexical", "tags", "vector"}
        assert f"{hit.score:.5f}" in str(explanation)
        assert explanation.as_dict()["via"] == hit.via


def test_without_vectors_lexical_and_tags_answer(memory):
    memory.add("alpha", embed=False)
    memory.add("beta", tags="gamma ray", embed=False)
    assert rows(memory.recall("alpha")) == {0}
    assert rows(memory.recall("gamma ray bursts")) == {1}
    assert memory.stats().without_vector == 2
    assert memory.embed() == 2
    assert memory.embed() == 0
    assert rows(memory.recall("delta")) == {0, 1}


def test_deferred_rows_are_embedded_when_added_again(memory):
    memory.add_many(["alpha", "beta"], embed=False)
    memory.add("alpha")
    assert memory.stats().without_vector == 1


def test_evidence_follows_recall(memory):
    vpn(memory)
    evidence = memory.evidence("Which VPN vendor do we use?", as_of="2024-06-01", style="tagged")
    assert set(evidence.row_ids) == {0, 1}
    assert "Vendor B" not in str(evidence)
    assert [hit.row_id for hit in evidence.hits] == list(evidence.row_ids)
    assert str(memory.evidence("vpn", as_of="2020-01-01")) == ""


def test_empty_store_and_empty_question(memory):
    assert memory.recall("anything") == []
    assert memory.records() == []
    assert len(memory) == 0
    assert str(memory.evidence("anything")) == ""
    vpn(memory)
    for empty in ("", "  \n"):
        with pytest.raises(mempp.InputError, match="question is empty"):
            memory.recall(empty)
    with pytest.raises(mempp.InputError, match="must be text"):
        memory.recall(None)
    with pytest.raises(mempp.InputError, match="k must be at least 1, got 0"):
        memory.recall("vpn", k=0)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"text": "a", "txt": "b"}, "no field 'txt'"),
        ({"author": "x"}, "needs a text"),
        ({"text": 5}, "text must be text, not int"),
        ({"text": "a", "occurred_at": "soon"}, "occurred_at is no date: 'soon'"),
        ({"text": "a", "author": 5}, "author must be a text or several"),
        ({"text": "a", "author": "x", "authors": ["y"]}, "both"),
        ({"text": "a", "metadata": {1: 2}}, "key that is no text: 1"),
        ({"text": "a", "metadata": {"a": float("nan")}}, "metadata is not JSON"),
        ({"text": "a", "metadata": [1]}, "metadata must be a mapping"),
        ({"text": "a \ud800 b"}, "lone surrogate"),
        ({"text": "a", "tags": ["\udfff"]}, "lone surrogate"),
        (b"bytes", "a document is a Document, a mapping or a text, not bytes"),
        (None, "not NoneType"),
    ],
)
def test_unusable_documents_are_refused_and_nothing_is_added(memory, document, message):
    with pytest.raises(mempp.InputError, match=message):
        memory.add(document)
    with pytest.raises(mempp.InputError, match="document 2 of those handed in: .*" + message):
        memory.add_many(["fine", document])
    assert len(memory) == 0
    assert memory.add("fine").row_id == 0


def test_add_many_is_not_for_one_document(memory):
    for one in ("text", {"text": "a"}, mempp.Document(text="a")):
        with pytest.raises(mempp.InputError, match="use add"):
            memory.add_many(one)
    with pytest.raises(mempp.InputError, match="put it into the document"):
        memory.add(mempp.Document(text="a"), author="b")
    with pytest.raises(mempp.InputError, match="batch_size"):
        memory.add_many([], batch_size=0)


def test_batches_before_a_bad_document_are_stored(memory):
    with pytest.raises(mempp.InputError, match="document 6"):
        memory.add_many(["a", "b", "c", "d", "e", None], batch_size=2)
    assert [record.text for record in memory.records()] == ["a", "b", "c", "d"]


def test_add_many_streams_and_tells_progress(memory):
    told = []

    def stream():
        for n in range(7):
            assert n == 0 or len(memory) >= (n // 3) * 3 - 3
            yield f"text {n}"

    memory.add_many(stream(), batch_size=3, progress=told.append)
    assert told == [3, 6, 7]


def test_many_small_adds_make_few_files(tmp_path):
    with mempp.open(tmp_path / "store", encoder="none") as memory:
        memory._store.seal_bytes = 50_000
        for n in range(600):
            memory.add(f"message {n}")
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert len(files) < 30
    with mempp.open(tmp_path / "store", read_only=True) as memory:
        assert [record.text for record in memory.records()] == [f"message {n}" for n in range(600)]


def test_a_huge_text(tmp_path):
    text = "needle " + "hay stack " * 5_000_000
    with mempp.open(tmp_path / "store", encoder="none") as memory:
        memory.add(text)
        memory.add("small")
    with mempp.open(tmp_path / "store", read_only=True) as memory:
        assert memory.get(0).text == text
        assert rows(memory.recall("needle")) == {0}
        evidence = memory.evidence("needle")
        assert evidence.cut
        assert len(str(evidence)) <= 40_000


def test_reading_only(tmp_path):
    with pytest.raises(mempp.NotAStoreError):
        mempp.open(tmp_path / "store", read_only=True)
    assert not (tmp_path / "store").exists()
    with mempp.open(tmp_path / "store", encoder="none") as memory:
        memory.add("a")
    before = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "store").rglob("*"))
    with mempp.open(tmp_path / "store", read_only=True, encoder="none") as memory:
        assert rows(memory.recall("a")) == set()  # "a" is a stop word
        assert len(memory) == 1
        for write in (
            lambda: memory.add("b"), lambda: memory.retract(0), lambda: memory.annotate(0, "k", 1), memory.embed,
            lambda: memory.add_many(["b"]),
        ):  # fmt: skip
            with pytest.raises(mempp.StoreReadOnlyError, match="reading only"):
                write()
    assert sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "store").rglob("*")) == before


def test_a_closed_memory_says_so(memory):
    memory.add("a")
    memory.close()
    memory.close()
    for use in (
        lambda: memory.add("b"),
        lambda: memory.recall("b"),
        lambda: memory.get(0),
        memory.refresh,
        memory.stats,
    ):
        with pytest.raises(mempp.StoreClosedError):
            use()
    assert "closed" in repr(memory)


def test_not_a_store(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "letter.txt").write_text("x")
    for path in (tmp_path / "folder", tmp_path / "folder" / "letter.txt"):
        with pytest.raises(mempp.NotAStoreError, match=path.name):
            mempp.open(path)


def test_a_store_remembers_its_encoder_and_refuses_another(tmp_path):
    first, other = WordEncoder(16), WordEncoder(8)
    with mempp.open(tmp_path / "store", encoder=first) as memory:
        memory.add("alpha")
    with pytest.raises(mempp.EncoderMismatchError, match=r"test-words-16.*test-words-8"):
        mempp.open(tmp_path / "store", encoder=other)
    with mempp.open(tmp_path / "store", encoder="none") as memory:
        assert rows(memory.recall("alpha")) == {0}
        assert memory.stats().encoder == "test-words-16"
    # Without encoder= the store follows its own; nobody can make a test encoder from its name, and it says so.
    with mempp.open(tmp_path / "store") as memory:
        assert memory.get(0).text == "alpha"
        assert rows(memory.recall("alpha", settings=mempp.Settings(weight_vector=0.0))) == {0}
        with pytest.raises(mempp.EncoderError, match="test-words-16"):
            memory.recall("alpha")


class Failing(WordEncoder):
    fail = False

    def encode_documents(self, texts):
        if self.fail:
            raise mempp.EncoderError("the service is down")
        return super().encode_documents(texts)


def test_what_could_not_be_embedded_is_stored_and_embedded_later(memory):
    encoder = Failing()
    with mempp.in_memory(encoder=encoder) as memory:
        encoder.fail = True
        with pytest.raises(mempp.EncoderError, match="down") as caught:
            memory.add("alpha")
        assert "embed() does that later" in "".join(caught.value.__notes__)
        encoder.fail = False
        assert memory.add("alpha").repeated == 1
        assert memory.stats().without_vector == 0


class Wrong(WordEncoder):
    def encode_documents(self, texts):
        return np.full((len(texts), 3), np.nan)


def test_an_encoder_that_gives_nonsense_is_named():
    with mempp.in_memory(encoder=Wrong()) as memory, pytest.raises(mempp.EncoderError, match="test-words-16"):
        memory.add("alpha")


@pytest.mark.parametrize("choice", ["nonsense", 5, b"minilm", ""])
def test_no_such_encoder(choice):
    with pytest.raises(mempp.MemppError):
        mempp.in_memory(encoder=choice)


def test_stats(memory):
    vpn(memory)
    memory.add("undated")
    memory.supersede(0, by=2)
    memory.retract(1)
    memory.archive(4, into=3)
    memory.annotate(0, "note", "x")
    stats = memory.stats()
    assert (stats.rows, stats.active, stats.superseded, stats.retracted, stats.archived) == (5, 2, 1, 1, 1)
    assert (stats.undated, stats.authors, stats.threads, stats.annotations) == (1, 2, 0, 1)
    assert stats.entries == 1 + 5 + 4
    assert (str(stats.first_date.date()), str(stats.last_date.date())) == ("2023-12-28", "2025-09-09")
    assert stats.as_dict()["last_date"] == "2025-09-09T00:00:00+00:00"
    assert (stats.bytes_on_disk is None) == (memory.path is None)


def test_threads_recall_one_state_while_others_add(memory):
    """Every batch is two rows that belong together: an answer has both or none."""
    stop = threading.Event()
    faults = []

    def ask():
        try:
            while not stop.is_set():
                found = sorted(
                    hit.row_id for hit in memory.recall("pair", k=10_000, settings=mempp.Settings(candidates=10_000))
                )
                if found != list(range(len(found))) or len(found) % 2:
                    faults.append(found)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for n in range(60):
            memory.add_many([f"pair {n} left", f"pair {n} right"])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not faults
    assert len(memory.recall("pair", k=1000)) > 0


def test_two_memories_of_one_store_take_each_other_in(tmp_path):
    path = tmp_path / "store"
    with mempp.open(path, encoder=WordEncoder()) as one, mempp.open(path, encoder=WordEncoder()) as two:
        one.add("alpha")
        assert len(two) == 0
        assert two.add("alpha").row_id == 0  # each commit first takes in what others wrote
        assert two.add("beta").row_id == 1
        assert len(one) == 1
        assert one.refresh() == 1
        assert rows(one.recall("beta")) == {0, 1}
        assert one.stats().without_vector == 0
        two.retract(1)
        one.refresh()
        assert rows(one.recall("beta")) == {0}


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"])), max_size=8))
def test_every_text_comes_back_byte_for_byte(texts):
    with mempp.in_memory(encoder="none") as memory:
        report = memory.add_many(texts)
        for text, row in zip(texts, report.row_ids, strict=True):
            if row is None:
                assert not text.strip()
            else:
                assert memory.get(row).text == text


@given(st.permutations(range(6)), st.integers(0, 7))
def test_the_order_of_ingestion_does_not_change_what_is_in_scope(order, day):
    documents = [{"text": f"text {n}", "occurred_at": f"2024-01-0{n + 1}" if n != 3 else None} for n in range(6)]
    with mempp.in_memory(encoder="none") as memory:
        memory.add_many([documents[n] for n in order])
        memory.add_many(documents)
        assert len(memory) == 6
        found = {record.text for record in memory.records(as_of=f"2024-01-0{day}" if day else None)}
        assert found == {f"text {n}" for n in range(6) if (n != 3 and n + 1 <= day) or not day}


def test_importing_is_cheap():
    import subprocess
    import sys

    code = (
        "import sys, mempp\nheavy = {'numpy',"
        "  'pyarrow', 'tantivy', 'onnxruntime', 'hnswlib', 'onnx', 'openai', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_encoder_that_is_not_installed_is_told_before_anything_is_stored(tmp_path, monkeypatch):
    from mempp.encoders import minilm

    def missing():
        raise mempp.EncoderUnavailableError("the weights are not installed")

    monkeypatch.setattr(minilm, "find_archive", missing)
    with mempp.open(tmp_path / "store") as memory:
        with pytest.raises(mempp.EncoderUnavailableError, match="not installed"):
            memory.add("alpha")
        assert len(memory) == 0
        assert memory.add("alpha", embed=False).row_id == 0


@pytest.mark.parametrize("place", ["before the rows", "half way", "after the rows"])
def test_an_interrupt_between_log_and_projection_is_made_good(memory, monkeypatch, place):
    """Ctrl-C may come at any moment; what the log then holds must appear, once, in this very object."""
    from mempp import projection

    memory.add("before")
    lexical_add = projection.LexicalIndex.add
    apply = projection.Projection.apply
    armed = [True]

    def interrupted(self, *arguments, **named):
        if not armed or not arguments[0]:
            return apply(self, *arguments, **named)
        armed.clear()
        if place == "half way":
            lexical_add(self._lexical, ["interrupted"])
        elif place == "after the rows":
            apply(self, *arguments, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(projection.Projection, "apply", interrupted)
    with pytest.raises(KeyboardInterrupt):
        memory.add("interrupted")
    assert [hit.record.text for hit in memory.recall("before", k=1)] == ["before"]
    memory.add("after")
    assert [record.text for record in memory.records()] == ["before", "interrupted", "after"]
    assert memory.add("interrupted").row_ids == (1,)
    assert {hit.row_id for hit in memory.recall("interrupted", settings=mempp.Settings(weight_vector=0.0))} >= {1}
    assert memory.stats().without_vector == 0


class Colour(str, Enum):  # noqa: UP042 - a StrEnum says its value in str(), this kind its name
    RED = "red"


def test_a_text_that_is_an_enum_is_stored_as_its_text(memory):
    memory.add(Colour.RED, author=Colour.RED, source=Colour.RED)
    record = memory.get(0)
    assert (record.text, record.author, record.source) == ("red", "red", "red")
    assert type(record.text) is str


def test_filters_compare_what_was_stored(memory):
    memory.add("alpha", author="Zoë", source=" s1 ", thread="t\n", metadata={"d": {"a": 1.0}, "n": 3, "e": [1]})
    assert rows(memory.recall("alpha", author="Zoe\u0308")) == {0}
    assert rows(memory.recall("alpha", source=memory.get(0).source, thread=memory.get(0).thread)) == {0}
    assert rows(memory.recall("alpha", where={"d": {"a": 1}, "n": np.int64(3)})) == {0}
    assert rows(memory.recall("alpha", where={"n": 3.0, "e": 1})) == {0}


HUGE = 10**5000


@pytest.mark.parametrize(
    "use",
    [
        lambda memory: memory.get(HUGE),
        lambda memory: memory.get(-HUGE),
        lambda memory: memory.recall("q", k=-HUGE),
        lambda memory: memory.recall("q", k=[]),
        lambda memory: memory.add("t", author=HUGE),
        lambda memory: memory.add("t", metadata={"a": HUGE}),
        lambda memory: memory.recall("q", as_of=HUGE),
        lambda memory: memory.recall("q", rows=HUGE),
        lambda memory: memory.recall("q", rows=b"\x01"),
        lambda memory: memory.recall("q", rows="1"),
        lambda memory: memory.recall("q", rows=[1.5]),
        lambda memory: memory.recall("q", where={"a": date(2024, 1, 1)}),
        lambda memory: memory.recall("q", where={"a": {1: 2}}),
        lambda memory: memory.recall("q", where="a"),
        lambda memory: memory.recall("\ud800"),
        lambda memory: memory.recall("q", author=5),
        lambda memory: memory.add_many(None),
        lambda memory: memory.add_many(5),
        lambda memory: memory.recall_many(None),
        lambda memory: memory.evidence("q", style=np.array(["plain", "tagged"])),
        lambda memory: mempp.Settings(weight_lexical=10**400),
        lambda memory: mempp.Settings(gamma=1e-320),
        lambda memory: mempp.Settings(ties=np.array(["event"] * 2)),
        lambda memory: mempp.preset([]),
        lambda memory: mempp.in_memory(exact_up_to="a"),
        lambda memory: mempp.in_memory(repeats=np.array(["exact"] * 2)),
        lambda memory: mempp.open(None),
        lambda memory: mempp.open("x\ud800"),
        lambda memory: mempp.open("x", lock_timeout="soon"),
        lambda memory: mempp.open("x", lock_timeout=float("nan")),
    ],
)
def test_hostile_arguments_get_a_clear_error(memory, use, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    memory.add("alpha")
    with pytest.raises(mempp.InputError) as caught:
        use(memory)
    assert len(str(caught.value)) < 400
    assert len(memory) == 1


def test_an_exception_of_the_callers_own_passes_through(memory):
    def broken():
        yield 0
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        memory.recall("q", rows=broken())


class Raising(WordEncoder):
    def encode_documents(self, texts):
        raise RuntimeError("out of order")


class Ragged(WordEncoder):
    def encode_documents(self, texts):
        return [[1.0], [1.0, 2.0]]


class TooLong(WordEncoder):
    def encode_documents(self, texts):
        return 100 * super().encode_documents(texts)


class NotAnArray(WordEncoder):
    def encode_documents(self, texts):
        return None


@pytest.mark.parametrize(
    ("encoder", "message"),
    [(Raising, "out of order"), (Ragged, "no array"), (TooLong, "length 100"), (NotAnArray, "no array")],
)
def test_faults_of_an_encoder_of_the_callers_own(tmp_path, encoder, message):
    with mempp.open(tmp_path / "store", encoder=encoder()) as memory:
        with pytest.raises(mempp.EncoderError, match=message) as caught:
            memory.add("alpha")
        assert "stored and durable" in "".join(caught.value.__notes__)
        assert len(memory) == 1
    # It made no vector, so the store is not bound to it.
    with mempp.open(tmp_path / "store", encoder=WordEncoder(8)) as memory:
        assert memory.embed() == 1
    with pytest.raises(mempp.EncoderMismatchError):
        mempp.open(tmp_path / "store", encoder=WordEncoder(16))


def test_hits_and_records_are_values(memory):
    vpn(memory)
    hits = memory.recall("vpn")
    assert len({*hits, *hits}) == len(hits)
    assert memory.get(0) in set(memory.records())


def test_a_forked_child_goes_on_with_its_own_locks(tmp_path):
    with mempp.open(tmp_path / "store", encoder="none") as memory:
        memory.add("before")
        stop = threading.Event()

        def busy():
            while not stop.is_set():
                memory.add(f"busy {time.monotonic_ns()}")
                memory.recall("busy")

        threads = [threading.Thread(target=busy) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        signal.alarm(20)
                        try:
                            memory.recall("before")
                            memory.add(f"child {os.getpid()}")
                            code = 0
                        except mempp.StoreError:
                            code = 0  # storage may say that it was in use when the process was forked
                    finally:
                        os._exit(code)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    with mempp.open(tmp_path / "store", encoder="none") as memory:
        assert len({record.text for record in memory.records()}) == len(memory)


def test_a_memory_whose_directory_now_holds_another_store_writes_nothing_there(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    with mempp.open("s", encoder="none") as one:
        one.add("one")
        monkeypatch.chdir(tmp_path / "b")
        with mempp.open("s", encoder="none") as other:
            other.add_many([f"precious {n}" for n in range(50)])
        one.add("two")
        assert one.path == tmp_path / "a" / "s"
    with mempp.open("s", encoder="none") as other:
        assert len(other) == 50
        (tmp_path / "b" / "s").rename(tmp_path / "b" / "moved")
        with mempp.open("s", encoder="none") as new:
            new.add("new")
        with pytest.raises(mempp.StoreError):
            other.add("to the old one")
        with pytest.raises(mempp.StoreError):
            other.refresh()
    with mempp.open("s", encoder="none") as new:
        assert [record.text for record in new.records()] == ["new"]


def test_opening_the_past(tmp_path):
    path = tmp_path / "store"
    with mempp.open(path, encoder=WordEncoder()) as memory:
        memory.add("alpha", occurred_at="2024-01-01")
        first = memory.head_sequence
        moment = memory.get(0).ingested_at
        before = memory.recall("alpha")
        memory.add_many([f"alpha {n}" for n in range(300)])
        memory.retract(0)
    for at in (first, moment, moment.isoformat()):
        with mempp.open(path, at=at, encoder=WordEncoder()) as past:
            assert len(past) == 1
            assert past.head_sequence == first
            assert past.recall("alpha") == before
            assert past.get(0).state.status == "active"
            assert past.refresh() == 0
            assert past.stats().rows == 1
            with pytest.raises(mempp.StoreReadOnlyError):
                past.add("beta")
    with mempp.open(path, at="2020-01-01", encoder="none") as past:
        assert len(past) == 0
        assert past.recall("alpha") == []
    with pytest.raises(mempp.InvalidDateError, match="at is no date"):
        mempp.open(path, at=True, encoder="none")
    with pytest.raises(mempp.NotAStoreError):
        mempp.open(tmp_path / "nothing", at=0)


def test_rescue_of_a_damaged_store(tmp_path):
    path = tmp_path / "store"
    with mempp.open(path, encoder="none") as memory:
        memory._store.seal_bytes = 400
        for n in range(12):
            memory.add(f"text number {n} " + "x" * 100)
        memory.retract(11)
    victim = sorted((path / "log").iterdir())[1]
    data = bytearray(victim.read_bytes())
    data[len(data) // 8 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 8)
    victim.write_bytes(data)
    with pytest.raises(mempp.StoreDamagedError, match=victim.name):
        mempp.open(path, encoder="none")
    with pytest.raises(mempp.InputError, match="read_only"):
        mempp.open(path, allow_damaged=True)
    with pytest.warns(mempp.DamageWarning, match=victim.name):
        memory = mempp.open(path, read_only=True, allow_damaged=True, encoder="none")
    with memory:
        kept = {record.row_id: record.text for record in memory.records()}
        lost = sorted(set(range(11)) - set(kept))
        assert lost
        assert len(kept) >= 6
        assert all(text.startswith(f"text number {row} ") for row, text in kept.items())
        assert memory.get(11).state.status == "retracted"
        with pytest.raises(mempp.RowNotFoundError, match="lost"):
            memory.get(lost[0])
        assert {hit.row_id for hit in memory.recall("text", k=50)} <= set(kept)
        assert memory.history(11).changes[0].kind == "retract"
        assert {record.row_id for record in memory.changes().records} == {*kept, 11}
        stats = memory.stats()
        assert (stats.lost, stats.active, stats.retracted) == (len(lost), len(kept), 1)
