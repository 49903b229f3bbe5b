"""Protects the month: what it is made of, that it can be done, and what each of its events does on the timeline."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sclate_adapters.errors import DataError, PrerequisiteError
from sclate_adapters.models import ToolCallPart
from sclate_adapters.records import Delivery
from sclate_adapters.sources import CronSource
from sclate_benchmarks.metaclaw import check
from sclate_benchmarks.metaclaw.data import Dataset
from sclate_benchmarks.workmonth.adapter import SHIPPED, WorkMonthBenchmark
from sclate_benchmarks.workmonth.office import ZONE
from tests.benchmarks.kit import FakeLife, judge, tree

from .workers import ApprenticeWorker, Expert, local

RULES = json.loads((SHIPPED / "rules.json").read_text())


def live(base: Path, make: Callable[[Dataset], Any], limit: int | None = None, **options: str) -> FakeLife:
    adapter = WorkMonthBenchmark(options=options)
    (scenario,) = adapter.scenarios("all", limit, 0)
    base.mkdir(exist_ok=True)
    cron = CronSource(name="agent_cron")
    return FakeLife(adapter, scenario, make(adapter.dataset), base, extra_sources=[cron]).run()


def at(instant_ns: int) -> str:
    return datetime.fromtimestamp(instant_ns / 1e9, ZONE).strftime("%a %d.%m. %H:%M %Z")


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> FakeLife:
    """The whole month, lived by an agent that knows every rule."""
    return live(tmp_path_factory.mktemp("month"), Expert)


# --- what it is made of ---------------------------------------------------------------------------------


def test_it_is_thirty_workdays_around_the_change_of_the_clocks() -> None:
    data = WorkMonthBenchmark().dataset
    first = date(2031, 3, 3)
    weekdays = [d for n in range(40) if (d := first + timedelta(n)).weekday() < 5][:30]
    assert [local(day).date() for day in data.days] == weekdays
    assert {local(day).strftime("%H:%M") for day in data.days} == {"09:00"}
    hours = {datetime.fromtimestamp(day.start_ns / 1e9, UTC).hour for day in data.days}
    assert hours == {8, 7}, "09:00 is another instant after the change"
    assert 90 <= data.rounds <= 120


def test_the_rules_come_one_after_the_other_and_are_not_metaclaws() -> None:
    data = WorkMonthBenchmark().dataset
    commands = [" ".join(r.check.command for r in day.rounds if r.check is not None) for day in data.days]
    kinds = {"iso8601": 1, "filename": 6, "metadata": 11, "backup": 16, "done_log": 21}
    for kind, begins in kinds.items():
        met = [n for n, text in enumerate(commands, 1) if f"check_{kind}.py" in text]
        assert met[0] == begins
        assert len(met) >= (31 - begins) * 0.6
    own, theirs = check.Rules(**RULES), check.Rules()
    ours, other = "03.03.2031 09:30", "2031-03-03T09:30:00+08:00"
    assert [check.matches(r.stamp, ours) for r in (own, theirs)] == [True, False]
    assert [check.matches(r.stamp, other) for r in (own, theirs)] == [False, True]
    assert own.backup_suffix != theirs.backup_suffix
    assert set(own.fields).isdisjoint(theirs.fields)


def test_every_rule_is_stated_with_an_example_that_keeps_it() -> None:
    rules = check.Rules(**RULES)
    seen = {"stamp": 0, "name": 0, "log": 0}
    for day in WorkMonthBenchmark().dataset.days:
        for asked in day.rounds:
            for shown in asked.feedback.incorrect.split("`")[1::2]:
                if shown[:2].isdigit() and shown[2:3] == ".":
                    seen["stamp"] += 1
                    assert check.matches(rules.stamp, shown), shown
                elif "_2031" in shown:
                    seen["name"] += 1
                    assert check.matches(rules.file_name, shown), shown
                elif shown.startswith("LOG"):
                    seen["log"] += 1
                    assert check.matches(rules.log_line, shown), shown
    assert min(seen.values()) >= 10


CLOCK = "date '+%F %T %Z'"


def test_on_five_days_around_the_change_the_agent_is_asked_for_its_clock() -> None:
    """In the first message, which is not graded: so that a run has a tool's clock to be looked at."""
    asking = [day for day in WorkMonthBenchmark().dataset.days if f"run `{CLOCK}`" in day.intro]
    assert [day.id for day in asking] == ["day01", "day10", "day20", "day21", "day30"]
    assert [local(day).tzname() for day in asking] == ["CET", "CET", "CET", "CEST", "CEST"]
    assert not [
        r.id for day in WorkMonthBenchmark().dataset.days for r in day.rounds if "date '" in r.question
    ]


def test_the_apprentice_looks_at_the_clock_where_it_is_asked_to(tmp_path: Path) -> None:
    workers: list[ApprenticeWorker] = []

    def make(data: Dataset) -> ApprenticeWorker:
        workers.append(ApprenticeWorker(data, None))
        return workers[-1]

    live(tmp_path / "clock", make, limit=1)
    calls = [p for m in workers[0].messages for p in m.parts if isinstance(p, ToolCallPart)]
    assert [call.input for call in calls if "date" in str(call.input)][:1] == [{"command": CLOCK}]


# --- that it can be done --------------------------------------------------------------------------------


def test_an_agent_that_knows_the_rules_passes_every_round(month: FakeLife) -> None:
    failed = [(j.subject.key, j.evidence) for j in month.judgments if not j.passed]
    assert not failed
    figures = month.adapter.figures(month.scenario, month.judgments)
    assert figures["exact_pass_accuracy"] == figures["mean_score"] == 1
    assert figures["rounds_judged"] == 105


def test_an_agent_that_does_nothing_passes_none(tmp_path: Path) -> None:
    adapter = WorkMonthBenchmark()
    (scenario,) = adapter.scenarios("all", None, 0)
    grader = adapter.grader(scenario)
    for number in (1, 6, 8, 11, 16, 21, 30):
        day = adapter.dataset.days[number - 1]
        work = tmp_path / day.id
        for path, data in {**adapter.dataset.root_files(), **adapter.day_files(day.id)}.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_bytes(data)
        for asked in day.rounds:
            assert judge(grader, work, f"{day.id}/{asked.id}").passed is False


def test_memory_makes_a_difference_without_a_model(tmp_path: Path) -> None:
    def late(memory: Path | None, name: str) -> float:
        life = live(tmp_path / name, lambda data: ApprenticeWorker(data, memory), limit=9)
        days = ("day03", "day07", "day08", "day09")
        verdicts = [j.passed for j in life.judgments if j.subject.keys[0].startswith(days)]
        return sum(map(bool, verdicts)) / len(verdicts)

    remembering, forgetting = late(tmp_path / "memory", "with"), late(None, "without")
    assert remembering >= 0.9
    assert forgetting <= 0.7


# --- what its events do ---------------------------------------------------------------------------------


def test_the_nightly_job_fires_once_a_night_also_where_half_past_two_does_not_exist(month: FakeLife) -> None:
    woken = [d for d in month.log if d.what == "cron"]
    assert [at(d.at_ns) for d in woken] == [
        "Fri 28.03. 02:30 CET",
        "Sat 29.03. 02:30 CET",
        "Sun 30.03. 03:00 CEST",
        "Mon 31.03. 02:30 CEST",
        "Tue 01.04. 02:30 CEST",
    ]
    wakes = [d for d in month.log if d.what == "wake"]
    assert [d.session for d in wakes] == [d.session for d in woken]
    assert all(d.text.startswith("Night watch") for d in woken)


def test_a_customer_answers_half_an_hour_after_the_reply(month: FakeLife) -> None:
    for ticket, session in (("T-3107", "day08"), ("T-3119", "day23")):
        (reply,) = [w for w in month.writes if w.key == f"ticket.{ticket}.reply"]
        (answer,) = [d for d in month.log if d.what == "notice" and ticket in d.text]
        assert reply.actor == "agent"
        assert answer.at_ns - reply.sim_ns == 30 * 60 * 10**9
        assert answer.session == session


def test_without_a_reply_nobody_answers(tmp_path: Path) -> None:
    life = live(tmp_path / "silent", lambda data: lambda delivery, workspace: "", limit=8)
    assert not [d for d in life.log if d.what == "notice"]
    assert not [w for w in life.writes if w.key.startswith("ticket")]


def test_a_remark_comes_in_the_middle_of_a_turn(month: FakeLife) -> None:
    (remark,) = [d for d in month.log if d.what == "notice" and "lorry" in d.text]
    (turn,) = [d for d in month.log if d.key == "day12/r1"]
    assert remark.in_turn == "day12/r1"
    assert remark.at_ns - turn.at_ns == 200_000_000


def test_the_nights_report_is_lived_through_and_lies_there_in_the_morning(tmp_path: Path) -> None:
    seen: dict[str, bool] = {}

    def look(delivery: Delivery, workspace: Path) -> str:
        seen.setdefault(delivery.session, (workspace / "reports/traffic-2031-03-06.json").exists())
        return ""

    life = live(tmp_path / "reports", lambda data: look, limit=5)
    begun, ended = [d for d in life.log if d.what.startswith("reserve")]
    assert at(begun.at_ns) == "Thu 06.03. 23:30 CET"
    assert ended.at_ns - begun.at_ns == 3 * 10**9
    assert seen == {"day01": False, "day02": False, "day03": False, "day04": False, "day05": True}


def test_mail_arrives_at_its_own_hour_also_on_a_saturday(month: FakeLife) -> None:
    arrivals = [at(d.at_ns) for d in month.log if d.what == "hook arrival"]
    assert {"Mon 03.03. 18:40 CET", "Sat 08.03. 11:30 CET", "Sat 29.03. 20:00 CET"} <= set(arrivals)
    inbox = json.loads((month.base / "work/mail/inbox.json").read_text())
    assert len(inbox) == 10
    assert inbox[2]["at"] == "08.03.2031 11:30"
    assert json.loads((month.base / "state/office.json").read_text())["mail"] == 10


def test_a_ticket_keeps_the_agents_reply_when_more_arrives(month: FakeLife) -> None:
    ticket = json.loads((month.base / "work/tickets/T-3107.json").read_text())
    assert ticket["reply"] == "Berth 4 is kept for you"


def test_rounds_wait_for_their_hour(month: FakeLife) -> None:
    hours = {d.key: at(d.at_ns).split()[2] for d in month.log if d.what == "turn"}
    asked_at = [
        (f"{day.id}/{r.id}", r.extra["at"])
        for day in WorkMonthBenchmark().dataset.days
        for r in day.rounds
        if "at" in r.extra
    ]
    assert len(asked_at) >= 10
    assert all(hours[key] == hour for key, hour in asked_at)


def test_a_limit_ends_the_world_with_the_last_session() -> None:
    adapter = WorkMonthBenchmark()
    (scenario,) = adapter.scenarios("all", 5, 0)
    assert scenario.id == "workmonth-first5"
    days = adapter.days(scenario)
    hooks = [*adapter.arrivals(days), *adapter.night_reports(days)]
    assert hooks
    assert all(h.at_ns <= days[-1].start_ns for h in hooks)


# --- settings -------------------------------------------------------------------------------------------


def test_the_graders_stay_hidden_unless_asked_for(tmp_path: Path, month: FakeLife) -> None:
    assert not [name for name in tree(month.base / "work") if name.startswith("scripts/")]
    life = live(tmp_path / "seen", lambda data: lambda delivery, workspace: "", limit=1, graders="visible")
    assert {"scripts/check_value.py", "scripts/rules.json"} <= set(tree(life.base / "work"))


def test_a_fresh_workspace_is_refused_since_the_world_writes_into_it() -> None:
    with pytest.raises(PrerequisiteError, match="workspace=carry and graders=hidden"):
        WorkMonthBenchmark(options={"workspace": "fresh"})


def test_a_malformed_world_is_named(tmp_path: Path) -> None:
    (tmp_path / "world.json").write_text('{"mail": [')
    with pytest.raises(DataError, match=r"world\.json"):
        _ = WorkMonthBenchmark(tmp_path).office
