"""Commands with a time limit, whose whole process group ends with them."""
import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

KILL_GRACE_SECONDS = 5.0
_running = set()


@dataclass
class Result:
    code: int  # negative: the signal that ended it
    seconds: float
    timed_out: bool
    log: Path

    def text(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def tail(self, lines=30):
        return "\n".join(self.text().splitlines()[-lines:])


def end_group(process):
    """Ends a process and what it started; what minds no request within a grace is killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_GRACE_SECONDS)


def end_all():
    for process in list(_running):
        end_group(process)


def run(command, log, seconds=None, environment=None, folder=None):
    """Runs a command without stdin to its end or for so many seconds; both streams go into `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   cwd=folder, env={**os.environ, **(environment or {})}, start_new_session=True)
        _running.add(process)
        timed_out = False
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
            end_group(process)
        except BaseException:
            end_group(process)
            raise
        finally:
            _running.discard(process)
    return Result(process.returncode, time.monotonic() - begin, timed_out, log)
