"""The runner in this process: what is scored, what is kept, what goes on; against small systems made for it."""

import json
import math
import statistics
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.cases import Case, Collection, Dataset, EvalDocument
from eval.errors import CostLimitError, DatasetError, EvalError, SystemUnavailableError, UsageError
from eval.pool import Pool
from eval.results import RowsFile, digest_of_files, load, write_atomically
from eval.run import Plan, run
from eval.scoring import retrieval_scores
from eval.selection import Selection, choose
from eval.summing import figures
from eval.systems.base import Evidence, Ingest, Ranked, Retrieved

BUDGETS = (100, 1000)


def collection(name: str, questions: int, *, categories: Sequence[str] = ("a", "b"), gold: bool = True) -> Collection:
    documents = tuple(EvalDocument(id=f"{name}-d{i}", text=f"document {i} of {name}") for i in range(6))
    cases = tuple(
        Case(
            id=f"{name}-q{i}",
            category=categories[i % len(categories)],
            text=f"question {i}",
            answers=("yes",),
            evidence=(f"{name}-d{i % 6}", f"{name}-d{(i + 1) % 6}") if gold else (),
        )
        for i in range(questions)
    )
    return Collection(id=name, documents=documents, cases=cases)


def dataset(*collections: Collection) -> Dataset:
    return Dataset(
        name="fake",
        title="A fake",
        where="here",
        licence="none",
        size="small",
        expects="nothing",
        categories={"b": "Second letter", "a": "First letter"},
        read=lambda path, options: iter(collections),
        files=lambda path, options=None: [],
    )


@dataclass
class FakeSystem:
    """Ranks the documents in order from the number of the question on; may fail, and counts what it does."""

    name: str = "fake"
    configuration: dict = field(default_factory=lambda: {"k": 3})
    notes: tuple[str, ...] = ()
    fails: frozenset[str] = frozenset()
    stop_at: str | None = None
    opened: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    refuses: str | None = None

    @contextmanager
    def open(self, collection: Collection) -> Iterator["FakeSystem"]:
        if collection.id == self.refuses:
            raise RuntimeError("cannot take it in")
        self.opened.append(collection.id)
        self.documents = collection.documents
        yield self

    @property
    def ingest(self) -> Ingest:
        return Ingest(documents=len(self.documents), seconds=0.5, bytes_stored=10)

    def retrieve(self, case: Case, budgets: Sequence[int]) -> Retrieved:
        self.asked.append(case.id)
        if case.id == self.stop_at:
            raise KeyboardInterrupt
        if case.id in self.fails:
            raise ZeroDivisionError("a bug of the system")
        start = int(case.id.rpartition("q")[2]) % 6
        ids = [one.id for one in (self.documents * 2)[start : start + 3]]
        evidence = {
            budget: Evidence(text="x" * budget, shares=dict.fromkeys(ids[: budget // 100], 1.0)) for budget in budgets
        }
        ranked = tuple(Ranked(id=one, score=1 / (place + 1), ranks={"leg": place}) for place, one in enumerate(ids))
        return Retrieved(ranked=ranked, evidence=evidence, seconds=0.001)


class FakeAsking:
    """Answers everything, and judges by the number of the question."""

    def __init__(self, limit: int | None = None) -> None:
        self.configuration = {"answer": {"model": "fake"}, "judge": None}
        self.asked: list[str] = []
        self.limit = limit
        self.lock = threading.Lock()

    def ask(self, case, evidence):
        with self.lock:
            if self.limit is not None and len(self.asked) >= self.limit:
                raise CostLimitError("enough")
            self.asked.append(case.id)
        answer = {"text": "yes", "error": None, "failed": False, "input_tokens": 1, "output_tokens": 1, "seconds": 0.0}
        answer["cached"] = False
        return answer, None, {"f1": 1.0, "judge": (int(case.id.rpartition("q")[2]) % 3) / 2}

    def costs(self, rows):
        none = {"requests": 0, "cached": 0, "input_tokens": 0, "output_tokens": 0}
        return {"answer": none, "judge": none, "cost_usd": None}


def plan_for(data: Dataset, selection: Selection | None = None, **more) -> Plan:
    chosen = choose(data, Path("nowhere"), {}, selection or Selection())
    return Plan(
        dataset=data,
        data=Path("nowhere"),
        chosen=chosen,
        selection=selection or Selection(),
        data_digest=digest_of_files([]),
        budgets=BUDGETS,
        ks=(1, 2, 5),
        quiet=True,
        **more,
    )


def test_scores_times_and_ranks_stand_in_rows_and_summary():
    result = run(plan_for(dataset(collection("c", 4))), FakeSystem()).result
    assert result["complete"]
    assert result["summary"]["overall"] == pytest.approx(
        {
            "recall@1": 0.5,
            "recall@2": 1.0,
            "recall@5": 1.0,
            "mrr": 1.0,
            "ndcg@10": 1.0,
            "coverage@100": 0.5,
            "coverage@1000": 1.0,
            "search_ms": 1.0,
            "retrieved_chars": 3 * len("document 0 of c"),
            "evidence_chars": 1000.0,
        }
    )
    assert list(result["summary"]["by_category"]) == ["b", "a"]  # the order of the benchmark's table
    row = result["rows"][0]
    assert row["retrieved"][0] == {"id": "c-d0", "score": 1.0, "ranks": {"leg": 0}}
    assert row["gold_ranks"] == {"c-d0": 1, "c-d1": 2}
    assert row["evidence"]["100"]["shares"] == {"c-d0": 1.0}
    assert "text" not in row["evidence"]["100"]
    assert result["ingest_total"] == {"collections": 1, "documents": 6, "seconds": 0.5, "bytes_stored": 10}
    assert any("recall@5 counts the 3 documents" in note for note in result["notes"])


def test_without_gold_evidence_retrieval_is_absent_and_never_0():
    result = run(plan_for(dataset(collection("c", 3, gold=False))), FakeSystem()).result
    assert set(result["summary"]["overall"]) == {"search_ms", "retrieved_chars", "evidence_chars"}
    assert result["counts"]["without_gold_evidence"] == 3


def test_a_failed_retrieval_scores_0_and_the_rest_goes_on():
    result = run(plan_for(dataset(collection("c", 4))), FakeSystem(fails=frozenset({"c-q1"}))).result
    assert result["counts"]["retrieval_errors"] == 1
    failed = result["rows"][1]
    assert failed["error"] == "ZeroDivisionError: a bug of the system"
    assert failed["scores"]["mrr"] == failed["scores"]["coverage@1000"] == 0.0
    assert "search_ms" not in failed["scores"]
    assert result["summary"]["overall"]["mrr"] == 0.75


def test_a_failed_retrieval_scores_0_with_the_judge_too():
    plan = plan_for(dataset(collection("c", 4)), asking=FakeAsking())
    result = run(plan, FakeSystem(fails=frozenset({"c-q1"}))).result
    assert result["rows"][1]["scores"]["judge"] == 0.0
    assert result["rows"][1]["scores"]["f1"] == 0.0
    assert result["summary"]["overall"]["judge"] == pytest.approx((0 + 0 + 1 + 0) / 4)


def test_a_collection_that_cannot_be_taken_in_fails_its_questions_only():
    result = run(plan_for(dataset(collection("c", 2), collection("d", 2))), FakeSystem(refuses="c")).result
    assert [row["error"] is None for row in result["rows"]] == [False, False, True, True]


def test_a_system_that_is_not_available_ends_the_run():
    class Absent(FakeSystem):
        def open(self, collection):
            raise SystemUnavailableError("not installed")

    with pytest.raises(SystemUnavailableError):
        run(plan_for(dataset(collection("c", 2))), Absent())


def without_times(result: dict) -> dict:
    def timeless(values: dict) -> dict:
        return {name: value for name, value in values.items() if not name.endswith("_ms")}

    return {
        "rows": [{**row, "scores": timeless(row["scores"])} for row in result["rows"]],
        "summary": timeless(result["summary"]["overall"]),
        "configuration": result["configuration"],
    }


def test_results_do_not_depend_on_the_number_of_workers():
    data = dataset(collection("c", 40), collection("d", 7))
    one, many = (run(plan_for(data, asking=FakeAsking(), workers=n), FakeSystem()).result for n in (1, 8))
    assert without_times(one) == without_times(many)


def test_two_runs_do_not_write_one_file(tmp_path):
    plan = plan_for(dataset(collection("c", 2)), out=tmp_path / "r.json")
    with RowsFile(plan.out, "x" * 64), pytest.raises(EvalError, match="another run"):
        run(plan, FakeSystem())
    assert run(plan, FakeSystem()).result["complete"]


def test_the_cost_limit_keeps_what_was_done(tmp_path):
    plan = plan_for(dataset(collection("c", 30)), out=tmp_path / "r.json", asking=FakeAsking(limit=9), workers=3)
    outcome = run(plan, FakeSystem())
    assert isinstance(outcome.ended_by, CostLimitError)
    kept = load(plan.out)
    assert not kept["complete"]
    # Which of the requests under way came in before the limit was noticed is chance, but none is lost after it.
    assert 9 - 3 <= kept["counts"]["questions"] <= 9
    more = FakeAsking()
    result = run(replace(plan, resume=True, asking=more), FakeSystem()).result
    assert result["complete"]
    assert len(more.asked) == 30 - kept["counts"]["questions"]


def test_a_disk_that_refuses_is_one_clear_error(tmp_path):
    folder = tmp_path / "file"
    folder.write_text("no folder")
    with pytest.raises(EvalError, match="cannot write"):
        run(plan_for(dataset(collection("c", 2)), out=folder / "r.json"), FakeSystem())


def test_results_hold_no_absolute_path(tmp_path):
    system = FakeSystem(configuration={"encoder": {"folder": str(tmp_path / "model")}, "list": ["/etc/x"]})
    text = json.dumps(run(plan_for(dataset(collection("c", 2)), out=tmp_path / "r.json"), system).result)
    assert str(tmp_path) not in text
    assert "/etc" not in text
    assert '"model"' in text


# Selection


def categories_of(data: Dataset, selection: Selection) -> list[str]:
    chosen = choose(data, Path("x"), {}, selection)
    return [case.id for one in data.read(Path("x"), {}) for case in one.cases if case.id in chosen.order]


def test_limit_is_spread_over_collections_and_categories():
    data = dataset(*(collection(name, 10, categories=("a", "b", "c")) for name in "uvw"))
    chosen = categories_of(data, Selection(limit=9))
    assert sorted(one[0] for one in chosen) == list("uuuvvvwww")
    places = [int(one.rpartition("q")[2]) % 3 for one in chosen]
    assert sorted(places) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(1, 40), st.integers(1, 3))
def test_limit_takes_exactly_so_many(sizes, limit, kinds):
    data = dataset(*(collection(f"c{i}", n, categories="abc"[:kinds]) for i, n in enumerate(sizes)))
    chosen = choose(data, Path("x"), {}, Selection(limit=limit))
    assert len(chosen) == min(limit, sum(sizes))
    assert sum(map(len, chosen.by_collection.values())) == len(chosen)


@given(st.floats(0.05, 1), st.floats(0.05, 1), st.integers(0, 5))
def test_a_larger_fraction_holds_a_smaller_one(one, other, seed):
    data = dataset(collection("c", 200))
    small, large = (set(categories_of(data, Selection(fraction=f, seed=seed))) for f in sorted((one, other)))
    assert small <= large
    assert len(large) == pytest.approx(200 * max(one, other), abs=40)


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"fraction": 0.0}, {"fraction": 1.5}, {"fraction": math.nan}])
def test_impossible_selections(wrong):
    with pytest.raises(UsageError):
        Selection(**wrong)


def test_doubled_ids_and_empty_benchmarks_are_refused():
    with pytest.raises(DatasetError, match="twice"):
        choose(dataset(collection("c", 2), collection("c", 2)), Path("x"), {}, Selection())
    twice = collection("c", 2)
    with pytest.raises(DatasetError, match="question id 'c-q0'"):
        choose(dataset(twice, replace(twice, id="d")), Path("x"), {}, Selection())
    with pytest.raises(DatasetError, match="no question"):
        choose(dataset(), Path("x"), {}, Selection())


# Figures


@st.composite
def result_rows(draw):
    rows = []
    for i in range(draw(st.integers(1, 25))):
        value = st.none() | st.floats(0, 1)
        repeats = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=2))
        rows.append(
            {
                "id": f"q{i}",
                "collection": draw(st.sampled_from("xy")),
                "category": draw(st.sampled_from("abc")),
                "gold": {"evidence": []},
                "error": None,
                "answer": None,
                "verdict": {"repeats": repeats, "failed": 0, "unparsed": 0},
                "scores": {"mrr": draw(value), "judge": statistics.mean(repeats), "search_ms": draw(st.floats(0, 9))},
            }
        )
    return rows


@settings(max_examples=25)
@given(result_rows())
def test_the_summary_is_what_a_plain_recomputation_gives(rows):
    made = figures(rows, ["b"])
    groups = {None: rows} | {name: [row for row in rows if row["category"] == name] for name in "abc"}
    for name, own in groups.items():
        found = made["summary"]["overall"] if name is None else made["summary"]["by_category"].get(name, {})
        expected = {}
        for metric in ("mrr", "judge", "search_ms"):
            values = [row["scores"][metric] for row in own if row["scores"][metric] is not None]
            if values:
                expected[metric] = sum(values) / len(values)
        assert found == pytest.approx(expected)
    each = [sum(row["verdict"]["repeats"][i] for row in rows) / len(rows) for i in range(2)]
    assert made["judging"]["mean_of_each"] == pytest.approx(each)
    assert made["judging"]["standard_deviation"] == pytest.approx(statistics.stdev(each))
    assert sum(made["questions"].values()) == len(rows)


def test_a_document_ranked_twice_is_a_fault_of_the_system():
    twice = Retrieved(
        ranked=(Ranked(id="a", score=1), Ranked(id="a", score=1)), evidence={9: Evidence(text="", shares={})}, seconds=0
    )
    case = Case(id="q", category="c", text="?", evidence=("a",))
    with pytest.raises(ValueError, match="twice"):
        retrieval_scores(case, twice, ks=(1,), budgets=(9,), lengths={})


# Files


def test_files_are_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "r.json"
    write_atomically(path, {"a": 1})
    with pytest.raises(ValueError, match="Out of range"):
        write_atomically(path, {"a": math.nan})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [one.name for one in path.parent.iterdir()] == ["r.json"]


def test_digests_follow_contents_and_names(tmp_path):
    (tmp_path / "a").mkdir()
    for name, text in (("a/x", "1"), ("y", "2")):
        (tmp_path / name).write_text(text)
    files = [tmp_path / "a/x", tmp_path / "y"]
    first = digest_of_files(files)
    assert (first["files"], first["bytes"]) == (2, 2)
    assert digest_of_files(files[::-1]) == first
    moved = tmp_path / "moved"
    (tmp_path / "a").rename(moved)
    assert digest_of_files([moved / "x", tmp_path / "y"])["sha256"] != first["sha256"]
    with pytest.raises(EvalError, match="cannot read"):
        digest_of_files([tmp_path / "absent"])


def test_a_pool_gives_back_what_its_threads_finish_and_raises_what_they_raise():
    pool: Pool[int, int] = Pool(lambda n: 10 // n, 3)
    for n in (1, 2, 5):
        pool.submit(n)
    assert sorted(pool.finished()) == [2, 5, 10]
    pool.submit(0)
    with pytest.raises(ZeroDivisionError):
        list(pool.finished())
    assert pool.stop(1) == []
