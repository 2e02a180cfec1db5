"""`merge`, commits of several changes, and `undo` of a consolidation run."""

import re

import pytest
from consolidation_tools import ScriptedModel, TopicEncoder, documents, log_of, look, memory_of

import mempp
from mempp.errors import InputError, ModelRequestError, RowNotFoundError, StoreClosedError
from mempp.records import ACTIVE, State
from mempp.storage import DiskStore


@pytest.fixture
def memory():
    return memory_of(
        [
            mempp.Document(text="ka one", occurred_at="2024-01-01", author="a", tags="x", metadata={"p": 1, "q": [1]}),
            mempp.Document(
                text="ka two",
                occurred_at="2024-03-01",
                author=["b", "a"],
                tags=["y", "x"],
                metadata={"p": 1.0, "q": [1]},
            ),
            mempp.Document(text="ka three", author="c", thread="t", metadata={"q": [1], "r": None}),
            mempp.Document(text="lo four", occurred_at="2024-02-01"),
        ]
    )


# -- merge and commit ---------------------------------------------------------------------------------------------


def test_merge_in_one_commit(memory):
    before = memory.head_sequence
    merged = memory.merge([0, 1], "ka of both", reason="said twice")
    record = memory.get(merged)
    assert merged == 4
    assert (record.occurred_at, record.authors, record.tags) == (memory.get(0).occurred_at, ("a", "b"), ("x", "y"))
    assert (record.metadata, record.thread, record.source) == ({"q": [1]}, None, None)
    assert [(one.kind, one.related, one.reason) for one in memory.history(1).changes] == [("archive", 4, "said twice")]
    assert memory.head_sequence == before + 3
    stamps = {
        memory.get(merged).ingested_at,
        *(one.ingested_at for row in (0, 1) for one in memory.history(row).changes),
    }
    assert len(stamps) == 1, "one commit has one stamp"
    assert [record.row_id for record in memory.records()] == [2, 3, 4]
    assert [record.row_id for record in memory.records(as_of="2024-02-29")] == [0, 3]
    assert [record.row_id for record in memory.records(as_of="2024-03-01")] == [3, 4]
    assert [record.row_id for record in memory.records(known_at=before)] == [0, 1, 2, 3]
    assert memory.recall("ka of both", k=1)[0].row_id == merged
    assert memory.vectors([merged]).any(), "it is embedded"


def test_what_the_document_says_of_itself_stays(memory):
    document = mempp.Document(text="ka both", occurred_at="2024-05-01", author="me", tags="z", metadata={"own": 1})
    record = memory.get(memory.merge([0, 1], document))
    assert (str(record.occurred_at.date()), record.authors, record.tags) == ("2024-05-01", ("me",), ("z",))
    assert record.metadata == {"own": 1}
    assert [one.row_id for one in memory.records(as_of="2024-04-01")] == [0, 1, 3]


def test_a_merged_row_of_an_undated_original_is_undated(memory):
    merged = memory.merge([0, 1, 2], "ka of three")
    assert memory.get(merged).occurred_at is None
    assert memory.get(merged).metadata == {"q": [1]}
    # As of a date nothing is lost and nothing undated is seen: the dated originals go on to answer.
    assert [record.row_id for record in memory.records(as_of="2026-01-01")] == [0, 1, 3]
    assert [record.row_id for record in memory.records()] == [3, merged]


def test_what_becomes_of_an_original_does_not_let_the_merged_row_be_seen_earlier(memory):
    merged = memory.merge([0, 1], "ka of both")
    for change in (memory.retract, memory.reinstate, memory.archive):
        change(1)
        assert merged not in [record.row_id for record in memory.records(as_of="2024-02-15")]
        assert merged in [record.row_id for record in memory.records(as_of="2024-03-15")]
    with_archive = memory.archive(0, into=3)  # by hand, into a row that was there: reinstating takes it back whole
    memory.reinstate(0)
    assert with_archive > 0
    assert 3 in [record.row_id for record in memory.records(as_of="2024-02-01")]


def test_merges_upon_merges(memory):
    first = memory.merge([0, 1], "ka of both")
    second = memory.merge([first, 3], "lo of all")
    assert memory.get(second).occurred_at == memory.get(0).occurred_at
    seen = {day: [r.row_id for r in memory.records(as_of=day)] for day in ("2024-01-15", "2024-02-15", "2024-03-15")}
    assert seen == {"2024-01-15": [0], "2024-02-15": [0, 3], "2024-03-15": [second]}


@pytest.mark.parametrize(
    ("rows", "document", "error", "message"),
    [
        ([], "x", InputError, "at least one row"),
        ([9], "x", RowNotFoundError, "no row 9"),
        (["0"], "x", InputError, "row id"),
        ("01", "x", InputError, "row id"),
        ([0], "  ", InputError, "empty"),
        ([0], 5, InputError, "document"),
        ([0], {"texte": "x"}, InputError, "texte"),
    ],
)
def test_merges_that_are_refused_write_nothing(memory, rows, document, error, message):
    before = log_of(memory)
    with pytest.raises(error, match=message):
        memory.merge(rows, document)
    memory.retract(2)
    with pytest.raises(InputError, match="row 2 is archived or retracted already"):
        memory.merge([0, 2], "x")
    memory.reinstate(2)
    assert log_of(memory)[:-2] == before
    assert len(memory) == 4


def test_supersede_takes_several_rows_in_one_commit(memory):
    last = memory.supersede([0, 1, 0], by=3, reason="newer")
    assert [memory.get(row).state.by for row in (0, 1)] == [3, 3]
    assert memory.head_sequence == last
    assert memory.history(0).changes[0].ingested_at == memory.history(1).changes[0].ingested_at
    with pytest.raises(InputError, match="circle"):
        memory.supersede([2, 3], by=0)
    assert memory.get(2).state == ACTIVE, "none of them"
    assert memory.archive([2, 3], reason="old") == last + 2
    assert memory.history(2).changes[0].reason == "old"


def test_a_commit_of_several_changes_is_all_or_none(memory):
    def build(draft):
        new = draft.merge([0], "ka new")
        draft.supersede(1, by=new)
        draft.annotate(new, "note", {"of": new})
        draft.archive(2, into=new)
        draft.retract(3)
        draft.reinstate(3)

    last = memory.commit(build)
    assert last == memory.head_sequence
    assert (memory.get(0).state.into, memory.get(1).state.by, memory.get(2).state.into) == (4, 4, 4)
    assert memory.get(3).state == ACTIVE
    assert memory.annotations(4)[0].payload == {"of": 4}
    before = log_of(memory)
    assert memory.commit(lambda draft: None) == -1

    def failing(draft):
        draft.retract(4)
        draft.supersede(4, by=99)

    with pytest.raises(RowNotFoundError):
        memory.commit(failing)

    def circle(draft):
        draft.supersede(3, by=4)
        draft.supersede(4, by=3)

    with pytest.raises(InputError, match="circle"):
        memory.commit(circle)

    def into_itself(draft):
        new = draft.merge([4], "ka again")
        draft.retract(new)
        draft.archive(3, into=new)

    with pytest.raises(InputError, match="itself"):
        memory.commit(into_itself)
    with pytest.raises(ZeroDivisionError):
        memory.commit(lambda draft: 1 / 0)
    assert log_of(memory) == before


def test_an_encoder_that_is_missing_is_known_before_a_row_is_merged(memory):
    def missing():
        raise mempp.EncoderUnavailableError("no weights")

    memory.encoder.load = missing
    with pytest.raises(mempp.EncoderUnavailableError):
        memory.merge([0, 1], "ka both")
    assert len(memory) == 4


def test_vectors(memory):
    memory.add("ka five", embed=False)
    vectors = memory.vectors([1, 4, 1])
    assert vectors.shape == (3, 32)
    assert vectors.dtype == "float32"
    assert (vectors[0] == vectors[2]).all()
    assert not vectors[1].any()
    assert memory.vectors([]).shape == (0, 32)
    with pytest.raises(RowNotFoundError):
        memory.vectors([5])
    assert mempp.in_memory(encoder="none").vectors([]).shape == (0, 0)


# -- undo ---------------------------------------------------------------------------------------------------------


def test_a_run_is_taken_back_in_one_commit():
    memory = memory_of()
    before = look(memory)
    run_id = memory.consolidate(model=ScriptedModel()).run_id
    changed = [row for row, record in enumerate(before) if memory.get(row).state != record.state]
    commits = len({entry.ingested_at for entry in memory._store.entries})
    report = memory.undo(run_id)
    assert sorted(report.reinstated) == changed
    assert report.archived == tuple(range(len(before), len(memory)))
    assert report.left == ()
    assert look(memory)[: len(before)] == before
    assert {memory.get(row).state.status for row in report.archived} == {"archived"}
    assert len({entry.ingested_at for entry in memory._store.entries}) == commits + 1
    log = log_of(memory)
    assert memory.undo(run_id) == type(report)(run_id=run_id)
    assert log_of(memory) == log, "a second undo writes nothing"
    again = memory.consolidate(model=ScriptedModel())
    assert again.run_id != run_id
    assert again.counts["distinct"] == 7, "what was undone is not remembered"


def test_unknown_runs_are_told_apart():
    memory = memory_of()
    with pytest.raises(InputError, match="there is no run 'x'; known are none"):
        memory.undo("x")
    runs = [memory.consolidate(model=ScriptedModel(), max_calls=4).run_id]
    memory.undo(runs[0])
    runs.append(memory.consolidate(model=ScriptedModel()).run_id)
    for wrong in ("x", None, 5, "y" * 1000):
        with pytest.raises(InputError, match=f"known are {runs[1]}, {runs[0]}") as caught:
            memory.undo(wrong)
        assert len(str(caught.value)) < 300
    memory.close()
    with pytest.raises(StoreClosedError):
        memory.undo(runs[0])


def test_an_unfinished_run_is_taken_back_and_not_gone_on_with():
    memory = memory_of()
    first = memory.consolidate(model=ScriptedModel(), max_calls=12)
    assert not first.finished
    memory.undo(first.run_id)
    assert memory.consolidate(model=ScriptedModel()).run_id != first.run_id


def rows_of(memory, report, topic):
    (group,) = [one for one in report.groups if memory.get(one.rows[0]).text.startswith(topic)]
    return group.rows, group.row


def test_what_others_changed_since_is_left():
    memory = memory_of()
    report = memory.consolidate(model=ScriptedModel())
    last = len(documents()) - 1
    c1, c1_kept = rows_of(memory, report, "c1 note 0")
    loser = next(row for row in c1 if row != c1_kept)
    memory.supersede(loser, by=last)
    c2, c2_kept = rows_of(memory, report, "c2 note 0")
    retracted = next(row for row in c2 if row != c2_kept)
    memory.retract(retracted)
    c3, c3_kept = rows_of(memory, report, "c3 note 0")
    reinstated = next(row for row in c3 if row != c3_kept)
    memory.reinstate(reinstated)
    r1, _ = rows_of(memory, report, "r1 note 0")
    memory.supersede(r1[0], by=last)  # while it is archived
    r2, r2_merged = rows_of(memory, report, "r2 note 0")
    memory.retract(r2_merged)
    r3, r3_merged = rows_of(memory, report, "r3 note 0")
    memory.supersede(r3_merged, by=last)
    r4, _ = rows_of(memory, report, "r4 note 0")
    memory.retract(r4[1])

    undone = memory.undo(report.run_id)
    assert set(undone.left) == {loser, retracted, *r2, r2_merged, r4[1]}
    assert memory.get(loser).state.by == last
    assert memory.get(retracted).state.status == "retracted"
    assert reinstated not in undone.reinstated
    assert memory.get(reinstated).state == ACTIVE
    assert (memory.get(r1[0]).state.status, memory.get(r1[0]).state.by) == ("superseded", last)
    assert memory.get(r1[1]).state == ACTIVE
    assert {memory.get(row).state.status for row in r2} == {"archived"}, "what was taken out does not come to light"
    assert memory.get(r2_merged).state.status == "retracted"
    assert [memory.get(row).state.by for row in r3] == [last, last], "what replaced the merged row replaces them"
    assert memory.get(r3_merged).state.status == "archived"
    assert (memory.get(r4[0]).state, memory.get(r4[1]).state.status) == (ACTIVE, "retracted")


def test_what_others_did_again_since_is_left():
    memory = memory_of()
    report = memory.consolidate(model=ScriptedModel())
    c1, c1_kept = rows_of(memory, report, "c1 note 0")
    loser = next(row for row in c1 if row != c1_kept)
    memory.reinstate(loser)
    memory.supersede(loser, by=c1_kept, reason="the board said so")
    r1, r1_merged = rows_of(memory, report, "r1 note 0")
    memory.reinstate(r1[0])
    memory.archive(r1[0], into=r1_merged, reason="by hand")
    r2, r2_merged = rows_of(memory, report, "r2 note 0")
    another = len(documents()) - 1
    memory.archive(another, into=r2_merged, reason="by hand")
    r3, r3_merged = rows_of(memory, report, "r3 note 0")
    memory.archive(another - 1, into=r3_merged)
    memory.reinstate(another - 1)
    r4, r4_merged = rows_of(memory, report, "r4 note 0")
    memory.archive(r4_merged, reason="by hand")
    by_hand = [memory.get(row).state for row in (loser, r1[0], another, r1_merged, r2_merged)]
    reachable = [record.text for record in memory.records()]

    undone = memory.undo(report.run_id)
    assert set(undone.left) == {loser, r1[0], r1_merged, another, r2_merged}
    assert [memory.get(row).state for row in (loser, r1[0], another, r1_merged, r2_merged)] == by_hand
    assert not set(undone.left) & {*undone.reinstated, *undone.archived}
    assert {memory.get(row).state.status for row in (*r1[1:], *r2, *r3, *r4)} == {"active"}
    assert memory.get(r3_merged).state.status == "archived"
    assert r4_merged not in undone.archived
    assert [change.reason for change in memory.history(r4_merged).changes] == ["by hand"]
    assert memory.get(r1_merged).text in reachable
    assert memory.undo(report.run_id).left == ()


def test_a_run_of_which_only_the_plan_was_written_is_not_gone_on_with():
    class Fails(ScriptedModel):
        fails = True

        def ask(self, request):
            if self.fails:
                raise ModelRequestError("no")
            return super().ask(request)

    memory, model = memory_of(documents()[:7]), Fails()
    memory.add("c0 again")
    begun = memory.consolidate(model=model)
    assert begun.run_id is not None
    assert begun.counts["failed"] == 1
    assert memory.undo(begun.run_id) == type(memory.undo(begun.run_id))(run_id=begun.run_id)
    with pytest.raises(InputError, match=f"run {begun.run_id} is undone"):
        memory.consolidate(model=model, run_id=begun.run_id)
    model.fails = False
    again = memory.consolidate(model=model)
    assert again.run_id != begun.run_id
    assert again.counts["conflict"] == 1
    head = memory.head_sequence
    memory.undo(begun.run_id)
    assert memory.head_sequence == head


def test_a_later_run_upon_a_merged_row():
    memory = memory_of([mempp.Document(text=f"r1 {day}", occurred_at=f"2024-0{day}-01") for day in (1, 5)])
    first = memory.consolidate(model=ScriptedModel())
    memory.add("r1 3", occurred_at="2024-03-01")
    second = memory.consolidate(model=ScriptedModel())
    merged, again = first.merged[0], second.merged[0]
    assert second.archived == (merged, 3)
    memory.undo(first.run_id)
    assert [record.row_id for record in memory.records()] == [0, 1, again]
    # What the later row holds of the earlier ones stays unseen before their latest date, though they are back.
    assert [record.row_id for record in memory.records(as_of="2024-04-01")] == [0, 3]
    memory.undo(second.run_id)
    assert [record.row_id for record in memory.records()] == [0, 1, 3]


def test_on_disk_and_after_reopening(tmp_path):
    path = tmp_path / "store"
    with mempp.open(path, encoder=TopicEncoder()) as memory:
        memory.add_many(documents())
        before = look(memory)
        run_id = memory.consolidate(model=ScriptedModel()).run_id
        after = look(memory)
        seen = [[r.row_id for r in memory.records(as_of=f"2024-{month:02}-15")] for month in range(1, 13)]
    with mempp.open(path, encoder=TopicEncoder()) as memory:
        assert look(memory) == after
        assert [[r.row_id for r in memory.records(as_of=f"2024-{month:02}-15")] for month in range(1, 13)] == seen
        memory.undo(run_id)
        assert look(memory)[: len(before)] == before
        assert memory.verify().ok
        memory.compact()
    with mempp.open(path, encoder=TopicEncoder()) as memory:
        assert look(memory)[: len(before)] == before
        assert memory.get(memory._store.row_count - 1).state == State(status="archived")
    reasons = [entry.reason for entry in DiskStore(path, read_only=True).refresh() if entry.reason]
    assert {re.sub(run_id, "RUN", reason) for reason in reasons} == {"consolidation RUN", "undo of RUN"}


# -- an undo lasts ------------------------------------------------------------------------------------------------


class Another(ScriptedModel):
    """Says the same under another name."""

    name = "test:another"


@pytest.mark.parametrize("model", [ScriptedModel, Another])
@pytest.mark.parametrize("threshold", [0.85, 0.9])
def test_no_later_run_does_again_what_was_undone(model, threshold):
    memory = memory_of()
    first = memory.consolidate(model=ScriptedModel())
    memory.undo(first.run_id)
    before = look(memory)
    for _ in range(2):
        later = memory.consolidate(model=model(), threshold=threshold)
        assert look(memory) == before
        assert (later.superseded, later.merged, later.finished) == ((), (), True)
        assert sorted(later.undone) == sorted(one.rows for one in first.groups if one.outcome != "distinct")[:16]
    new = memory.add("c0 again", occurred_at="2026-01-01").row_id
    joined = memory.consolidate(model=model(), threshold=threshold)
    assert joined.superseded == (0, 21), "with another row it is another question"
    assert memory.get(0).state.by == new
    assert len(joined.undone) == 15
    again = memory.consolidate(model=model(), threshold=threshold, again=True)
    assert (again.undone, again.counts["restatement"]) == ((), 8)
    head = memory.head_sequence
    assert memory.consolidate(model=model(), threshold=threshold, again=True).asked == 0
    assert memory.head_sequence == head


def test_a_plan_from_before_an_undo_does_not_do_it_again():
    for again in (False, True):
        memory = memory_of()
        begun = memory.consolidate(model=ScriptedModel(), max_calls=2)
        assert begun.counts["conflict"] == 1
        between = memory.consolidate(model=Another())
        memory.undo(between.run_id)
        ended = memory.consolidate(model=ScriptedModel(), again=again)
        assert (ended.run_id, ended.finished) == (begun.run_id, True)
        assert (len(ended.undone), len(ended.merged) > 0) == ((0, True) if again else (15, False))


def test_a_run_that_was_begun_again_goes_on_with_its_plan():
    memory = memory_of()
    memory.undo(memory.consolidate(model=ScriptedModel()).run_id)
    begun = memory.consolidate(model=ScriptedModel(), again=True, max_calls=2)
    ended = memory.consolidate(model=ScriptedModel())
    assert (ended.run_id, ended.finished) == (begun.run_id, True)
    assert ended.counts["restatement"] == 8
