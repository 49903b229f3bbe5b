"""Format rules learnt from text. No value of a rule stands in this code: each is read from an example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sclate_benchmarks.apprentice.rules.backups import BackupStyle, learn_backup
from sclate_benchmarks.apprentice.rules.evidence import Statement, statements
from sclate_benchmarks.apprentice.rules.logs import LogStyle, learn_log
from sclate_benchmarks.apprentice.rules.metadata import HeaderStyle, learn_header
from sclate_benchmarks.apprentice.rules.names import NameStyle, learn_name
from sclate_benchmarks.apprentice.rules.times import TimeStyle, learn_time

__all__ = ["BackupStyle", "HeaderStyle", "LogStyle", "NameStyle", "Rules", "TimeStyle", "learn"]


@dataclass(frozen=True)
class Rules:
    """What the text in view asks for; None where it says nothing."""

    time: TimeStyle | None = None
    name: NameStyle | None = None
    header: HeaderStyle | None = None
    backup: BackupStyle | None = None
    log: LogStyle | None = None

    def known(self) -> frozenset[str]:
        """Names of the kinds that are known."""
        return frozenset(k for k, v in vars(self).items() if v is not None)


@lru_cache(maxsize=256)
def _learn(texts: tuple[str, ...]) -> Rules:
    said = [s for t in texts for s in statements(t)]
    return learn_from(said)


def learn_from(said: Sequence[Statement]) -> Rules:
    """The rules in a list of statements, oldest first."""
    return Rules(learn_time(said), learn_name(said), learn_header(said), learn_backup(said), learn_log(said))


def learn(texts: Sequence[str]) -> Rules:
    """The rules in texts, oldest first; a pure function of them."""
    return _learn(tuple(texts))
