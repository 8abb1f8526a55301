"""Time: how it is written, and how one night's is dealt out to what is due."""
import re
import time

DAY = 86400.0
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
SIZES = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}
# A task that has not run for so long goes first and may take most of the night; a week is what is promised.
DUE_AFTER_DAYS = 6
LARGEST_SHARE = 0.8


def parse_time(text):
    """"90", "90s", "45m", "1h" in seconds. Raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not found or float(found[1]) <= 0:
        raise ValueError(f"'{text}': allowed are positive times such as 90s, 45m or 1h")
    return float(found[1]) * UNITS[found[2]]


def parse_size(text):
    """"500MiB", "2GiB" in bytes. Raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text)
    if not found or found[2] not in SIZES or float(found[1]) <= 0:
        raise ValueError(f"'{text}': allowed are positive sizes such as 500MiB or 2GiB")
    return int(float(found[1]) * SIZES[found[2]])


def spelled(seconds):
    """"0.4 s", "41 s", "2 min 03 s", "1 h 05 min"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Budget:
    """What is left of a night. `used` is what an interrupted part of it has taken already."""

    def __init__(self, total, used=0.0, clock=time.monotonic):
        self.total, self._used, self._clock = total, used, clock
        self._begin = clock()

    def used(self):
        return self._used + self._clock() - self._begin

    def left(self):
        return max(0.0, self.total - self.used())


def stalest_first(names, last):
    """Names in the order in which they are due: those that never ran, then by the time of their last run."""
    return sorted(names, key=lambda name: (last.get(name, 0.0), name))


def is_due(last, created, now):
    """Whether a task of the weekly rotation must not wait any longer."""
    return now - max(last, created) >= DUE_AFTER_DAYS * DAY


def room_for(estimate, left, total, due):
    """Whether a task of the rotation is begun: a due one while it leaves time for the rest, another one when it takes
    less than a quarter of the night."""
    return estimate <= min(left, total * (LARGEST_SHARE if due else 0.25))


def slices(count, seconds, least):
    """How many of `count` get time, and how much each, so that none gets less than `least` unless one has to."""
    if count == 0 or seconds <= 0:
        return 0, 0.0
    some = max(1, min(count, int(seconds / least)))
    return some, seconds / some
