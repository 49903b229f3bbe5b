"""The shared catalogue of event sources, written as SimPy processes."""

from sclate_adapters.sources.app_state import AppStateConditionedSource, Condition, ConditionHit
from sclate_adapters.sources.cron import CronSource, MissedRuns, Schedule, WakeupSource, wake_session
from sclate_adapters.sources.grading import GradingSource
from sclate_adapters.sources.hooks import HookSource, TimedHook
from sclate_adapters.sources.session import SessionEndSource, SessionStartSource
from sclate_adapters.sources.user_input import Interjection, TurnPlan, UserInputSource

__all__ = [
    "AppStateConditionedSource",
    "Condition",
    "ConditionHit",
    "CronSource",
    "GradingSource",
    "HookSource",
    "Interjection",
    "MissedRuns",
    "Schedule",
    "SessionEndSource",
    "SessionStartSource",
    "TimedHook",
    "TurnPlan",
    "UserInputSource",
    "WakeupSource",
    "wake_session",
]
