"""The state folder: what ran when, corpora, new regressions, summaries; nothing else is kept from night to night."""
import fcntl
import json
import os
import shutil
import time
from pathlib import Path

FORMAT = 1
KEPT_NIGHTS = 60


class Busy(Exception):
    """Another night works on the folder."""


def write_json(path, value):
    """Atomically: a reader sees the old file or the whole new one."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(part, path)


def read_json(path, otherwise):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return otherwise


def size_of(folder):
    """Bytes below a folder."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


class State:
    def __init__(self, folder, quota):
        self.folder, self.quota = Path(folder).resolve(), quota
        for name in ("corpus", "logs", "nights", "regressions", "work"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._lock = (self.folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise Busy(f"{self.folder}: another night is at work there") from error
        known = read_json(self.folder / "state.json", {})
        if known.get("format", FORMAT) != FORMAT:
            raise Busy(f"{self.folder}/state.json: format {known['format']}, known is {FORMAT}")
        self.created = known.get("created", time.time())
        self.ran = known.get("ran", {})  # task: {"at", "seconds", "verdict"}
        self.tonight = read_json(self.folder / "tonight.json", None)

    def close(self):
        self._lock.close()

    # What ran when ------------------------------------------------------------------------------------------------
    def last(self):
        return {name: entry["at"] for name, entry in self.ran.items()}

    def estimate(self, name, otherwise):
        return self.ran.get(name, {}).get("estimate", otherwise)

    def record(self, name, seconds, verdict, complete=True):
        """A task that was cut off keeps the time of its last whole run, and is expected to take longer."""
        entry = self.ran.setdefault(name, {"at": 0.0})
        if complete:
            entry.update(at=time.time(), estimate=seconds, verdict=verdict)
        else:
            entry["estimate"] = max(1.5 * seconds, entry.get("estimate", 0.0))
        self.save()

    def save(self):
        write_json(self.folder / "state.json", {"format": FORMAT, "created": self.created, "ran": self.ran})
        if self.tonight is not None:
            write_json(self.folder / "tonight.json", self.tonight)

    # One night ----------------------------------------------------------------------------------------------------
    def begin(self, night):
        self.tonight = night
        self.save()

    def finish(self, summary):
        write_json(self.folder / "nights" / f"{summary['night']}.json", summary)
        self.tonight = None
        (self.folder / "tonight.json").unlink(missing_ok=True)
        self.save()
        self.keep_within_quota()

    def previous(self, night):
        """The summary of the newest night before this one, or nothing."""
        earlier = sorted(path for path in (self.folder / "nights").glob("*.json") if path.stem < night)
        return read_json(earlier[-1], None) if earlier else None

    # Disk ---------------------------------------------------------------------------------------------------------
    def keep_within_quota(self):
        """Removes what is worth least first: work, old logs, old summaries, then the largest inputs of the largest
        corpora. Returns what was removed, in words."""
        removed = []
        for path in sorted((self.folder / "nights").glob("*.json"))[:-KEPT_NIGHTS]:
            path.unlink()
        for path in [*sorted((self.folder / "work").iterdir()), *sorted((self.folder / "logs").iterdir())[:-1]]:
            if size_of(self.folder) <= self.quota:
                return removed
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            removed.append(str(path.relative_to(self.folder)))
        over = size_of(self.folder) - self.quota
        if over > 0:
            removed += self._drop_inputs(over)
        return removed

    def _drop_inputs(self, over):
        files = [path for path in (self.folder / "corpus").rglob("*") if path.is_file()]
        files.sort(key=lambda path: (-path.stat().st_size, str(path)))
        dropped = 0
        for path in files:
            if over <= 0:
                break
            over -= path.stat().st_size
            path.unlink()
            dropped += 1
        return [f"{dropped} of the largest inputs"] if dropped else []
