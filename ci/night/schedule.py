"""One night: what is run in which order, for how long, and what came of it."""
import fnmatch
import shutil
import subprocess
import time

from night import checks
from night.budget import is_due, room_for, slices, spelled, stalest_first
from night.coverage import coverage
from night.fuzzing import Fuzzer, seeds_of

# Shares of a night, of what is left when their turn comes; fuzzing takes the rest.
SHARES = {"corpus": 0.4, "canary": 0.08, "laws": 0.25, "faults": 0.2}
# Less than this is no use to a target: with little time fewer of them run, and the others the next night.
LEAST_FUZZ_SECONDS = 8.0
LEAST_LAW_SECONDS = 1.0
# A fault begun late in its share is not cut off at once.
LEAST_FAULT_SECONDS = 10.0
# One minimisation; a night may spend a tenth of its time on one, at most this.
MOST_MINIMIZE_SECONDS = 60.0
# Weekly checks and how long one is thought to take before it has run; clang-tidy may be cut and goes on where it was.
ROTATION = {"coverage": (coverage, 600.0), "test": (checks.whole_test, 1800.0), "tidy": (checks.tidy, 180.0)}


def commit_of(root):
    done = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(root), "rev-parse", "--short=12", "HEAD"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, text=True)
    changed = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(root), "status", "--porcelain"],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, text=True)
    if done.returncode != 0:
        return "unknown"
    return done.stdout.strip() + ("-dirty" if changed.stdout.strip() else "")


class Night:
    def __init__(self, tools, state, budget, only=(), say=print):
        self.tools, self.state, self.budget, self.only, self.say = tools, state, budget, only, say
        self.record = state.tonight

    # Bookkeeping --------------------------------------------------------------------------------------------------
    def wants(self, name):
        """Whether the task is asked for and was not done before an interruption."""
        asked = not self.only or any(fnmatch.fnmatch(name, glob) for glob in self.only)
        return asked and name not in self.record["done"]

    def take(self, name, check, complete=True):
        """Keeps what came of a task."""
        complete = complete and check.verdict != "cut"
        self.record["done"][name] = check.as_json()
        self.record["findings"] += [finding.as_json() for finding in check.findings]
        self.record["notes"] += check.notes
        self.record["used"] = self.budget.used()
        self.state.record(name, check.seconds, check.verdict, complete)
        for finding in check.findings:
            self.say(f"FINDING  {finding.source}: {finding.message.splitlines()[-1] if finding.message else ''}"
                     + (f"  {finding.file}" if finding.file else ""))
        if not complete:
            del self.record["done"][name]

    def one(self, name, function, seconds):
        if not self.wants(name):
            return
        self.say(f"{name}   {spelled(self.budget.left())} left")
        self.take(name, function(self.tools, seconds))

    # The order of a night -----------------------------------------------------------------------------------------
    def run(self):
        left = self.budget.left
        self.one("corpus", checks.corpus, max(60.0, SHARES["corpus"] * left()))
        self.one("earlier", lambda tools, _: checks.earlier_regressions(tools), left())
        self.one("canary", checks.canary, max(10.0, min(60.0, SHARES["canary"] * left())))
        self.rotation()
        self.laws(SHARES["laws"] * left())
        self.faults(SHARES["faults"] * left())
        self.fuzz()

    def rotation(self):
        """The weekly checks that have room, the most overdue first."""
        last, now = self.state.last(), time.time()
        for name in stalest_first(ROTATION, last):
            function, guess = ROTATION[name]
            due = is_due(last.get(name, 0.0), self.state.created, now)
            estimate = self.state.estimate(name, guess)
            named = name in self.only
            if self.wants(name) and (named or room_for(estimate, self.budget.left(), self.budget.total, due)):
                self.one(name, function, self.budget.left() if named or due else 0.25 * self.budget.total)
            elif self.wants(name) and due:
                self.record["notes"].append(f"{name} has not run for a week and takes about {spelled(estimate)}: give "
                                            f"the night {spelled(estimate / 0.8)}")

    def waiting(self, kind, names):
        """Tasks of a kind that are asked for, those that waited longest first."""
        return stalest_first([f"{kind}:{name}" for name in names if self.wants(f"{kind}:{name}")], self.state.last())

    def laws(self, seconds):
        """As many laws as get a useful time each, the time that one leaves to those after it."""
        waiting = self.waiting("law", self.tools.laws)
        count, _ = slices(len(waiting), seconds, LEAST_LAW_SECONDS)
        end = self.budget.used() + seconds
        self.say(f"laws   {count} of {len(waiting)} in {spelled(seconds)}")
        for number, name in enumerate(waiting[:count]):
            share = max(LEAST_LAW_SECONDS, (end - self.budget.used()) / (count - number))
            self.take(name, checks.law(self.tools, name.split(":", 1)[1], share))

    def faults(self, seconds):
        """As many faults as fit, each whole."""
        waiting = self.waiting("fault", self.tools.faults)
        end = self.budget.used() + seconds
        self.say(f"faults   up to {len(waiting)} in {spelled(seconds)}")
        for name in waiting:
            left = end - self.budget.used()
            if left <= 0:
                break
            if self.state.estimate(name, 0.0) <= max(left, seconds):
                self.take(name, checks.fault(self.tools, name.split(":", 1)[1], max(left, LEAST_FAULT_SECONDS)))

    def fuzz(self):
        waiting = self.waiting("fuzz", [name for name in self.tools.targets if name != checks.CANARY])
        count, _ = slices(len(waiting), self.budget.left(), LEAST_FUZZ_SECONDS)
        for number, name in enumerate(waiting[:count]):
            seconds = self.budget.left() / (count - number)
            if seconds <= 1.0:
                break
            self.say(f"{name}   {spelled(seconds)} of {spelled(self.budget.left())}")
            self.take(name, self.fuzz_one(self.tools.targets[name.split(":", 1)[1]], seconds))

    def fuzz_one(self, target, seconds):
        tools = self.tools
        fuzzer = Fuzzer(tools.programs, target, tools.folder, seeds_of(target, tools.programs.root), tools.jobs,
                        tools.seed)
        fuzzed = fuzzer.run(seconds)
        check = checks.Check(seconds=fuzzed.seconds, facts=fuzzed.as_json(), notes=list(fuzzed.problems))
        if fuzzed.executions == 0 and not fuzzed.artifacts:
            check.fail(f"fuzz target {target.name}", "executed nothing: " + "; ".join(fuzzed.problems))
        if fuzzed.artifacts:
            minimizing = min(MOST_MINIMIZE_SECONDS, max(5.0, 0.1 * self.budget.total))
            check.findings, notes = tools.keeper().keep_all(target, fuzzed.artifacts, minimizing)
            check.notes += notes
            check.verdict = "failed" if check.findings else check.verdict
        if not check.findings:
            shutil.rmtree(fuzzer.work, ignore_errors=True)
        self.state.keep_within_quota()
        return check


def unique(findings):
    """Findings, each file and each message once."""
    seen, kept = set(), []
    for finding in findings:
        key = finding["file"] or finding["source"] + finding["message"]
        if key not in seen:
            seen.add(key)
            kept.append(finding)
    return kept


def summary_of(night, state, commit, budget):
    """The night in one value, from which text, JSON and HTML are written."""
    record, tools = night.record, night.tools
    now = time.time()
    waiting = []
    for name in ["corpus", "canary", *ROTATION, *(f"law:{name}" for name in tools.laws),
                 *(f"fault:{name}" for name in tools.faults),
                 *(f"fuzz:{name}" for name in tools.targets if name != checks.CANARY)]:
        last = state.ran.get(name, {}).get("at", 0.0)
        waiting.append({"task": name, "at": last, "days": round((now - max(last, state.created)) / 86400.0, 2)})
    findings = unique(record["findings"])
    return {"format": 1, "night": record["night"], "commit": commit, "seed": record["seed"],
            "budget_seconds": budget.total, "used_seconds": round(budget.used(), 1),
            "resumed": record.get("resumed", 0), "done": record["done"], "findings": findings,
            "notes": record["notes"], "waiting": waiting, "exit_code": 1 if findings else 0}
