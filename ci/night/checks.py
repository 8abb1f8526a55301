"""What a night runs besides fuzzers. Every check is a function of the night's tools and of a number of seconds; it
returns a Check."""
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from night import process
from night.findings import Finding, Keeper
from night.fuzzing import is_caught, sanitizer_options, seeds_of

CANARY = "canary"
CANARY_CASES = 200
SEEDS_SECONDS = 120.0
# A case begun in time is finished, a failing one made smaller.
LONGEST_CASE_SECONDS = 60.0
TOO_FEW = re.compile(r"cases were decided: at least")


@dataclass
class Check:
    verdict: str = "passed"  # passed, failed, undecided, cut
    seconds: float = 0.0
    facts: dict = field(default_factory=dict)
    findings: list = field(default_factory=list)
    notes: list = field(default_factory=list)

    def fail(self, source, message, file=""):
        self.verdict = "failed"
        self.findings.append(Finding(source, message, file))

    def as_json(self):
        return {"verdict": self.verdict, "seconds": round(self.seconds, 2), **self.facts}


@dataclass
class Tools:
    """What checks have in common."""
    programs: object
    folder: Path   # of the state
    logs: Path     # of this night
    seed: int
    jobs: int
    commit: str
    targets: dict = field(default_factory=dict)
    laws: list = field(default_factory=list)
    faults: list = field(default_factory=list)

    def run(self, words, name, seconds=None, **more):
        return process.run(words, self.logs / f"{name}.log", seconds, **more)

    def shardcheck(self, words, name, seconds=None):
        return self.run([self.programs.shardcheck, *words], name, seconds, folder=self.logs)

    def keeper(self):
        return Keeper(self.programs, self.folder, set(self.laws), self.commit, self.seed)

    def relative(self, path):
        return str(path.relative_to(self.folder))


def names_listed(text, row):
    return [found[1] for found in map(re.compile(row).match, text.splitlines()) if found]


def learn(tools):
    """The laws, faults and targets of the programs. Raises RuntimeError when they do not say."""
    for topic, row in (("laws", r"^  ([a-z_0-9]+)  "), ("faults", r"^  ([a-z_0-9]+)  +[A-Z] ")):
        listed = tools.shardcheck(["list", topic], f"list-{topic}", 60)
        names = [name for name in names_listed(listed.text(), row) if name != topic[:-1]]
        if listed.code != 0 or not names:
            raise RuntimeError(f"shardcheck list {topic} names none:\n{listed.tail(5)}")
        setattr(tools, topic, names)
    tools.targets = tools.programs.targets(tools.logs / "targets.log")


# The corpus and what earlier nights found -------------------------------------------------------------------------------
def corpus(tools, seconds):
    check = Check()
    folder = tools.programs.root / "corpus"
    done = tools.shardcheck(["corpus", "verify", folder], "corpus", seconds)
    check.seconds = done.seconds
    if done.code != 0:
        check.fail("corpus", "does not end in time" if done.timed_out else done.tail(12))
    if found := re.search(r"(\d+) cases? in (\d+) files?", done.text()):
        check.facts.update(cases=int(found[1]), files=int(found[2]))
    if any((folder / "seeds").glob("*/*")):
        done = tools.run([tools.programs.sanitized / "fuzz_replay", folder / "seeds"], "seeds", SEEDS_SECONDS,
                         environment=sanitizer_options())
        check.seconds += done.seconds
        if done.code != 0:
            check.fail("seeds", "do not end in time" if done.timed_out else done.tail(12))
    return check


def earlier_regressions(tools):
    """Cases and inputs that earlier nights wrote: each is a finding until it is mended."""
    check = Check()
    for path in sorted((tools.folder / "regressions").rglob("*")):
        if not path.is_file():
            continue
        name = tools.relative(path)
        if path.suffix == ".case":
            done = tools.shardcheck(["replay", path], f"earlier-{path.stem}", 120)
        else:
            done = tools.run([tools.programs.sanitized / "fuzz_replay", f"--target={path.parent.name}", path],
                             f"earlier-{path.stem}", 120, environment=sanitizer_options())
        check.seconds += done.seconds
        if done.code == 0:
            check.notes.append(f"{name} is mended: keep it in corpus/ and remove it from the state folder")
        else:
            check.fail("an earlier night", f"{name} shows still: {why_of(path)}", name)
            check.findings[-1].kept = "case" if path.suffix == ".case" else "input"
    return check


def why_of(path):
    found = re.search(r"^# why: (.*)$", path.read_text(encoding="utf-8", errors="replace"), re.M)
    return found[1] if found else "no reason is recorded"


# The canaries -----------------------------------------------------------------------------------------------------------
def canary(tools, seconds):
    """A law and a fuzz target that are false on purpose."""
    check = Check()
    done = tools.shardcheck(["run", f"--law={CANARY}", f"--cases={CANARY_CASES}", f"--seed={tools.seed}",
                             f"--failures={tools.folder / 'work' / 'canary-failures'}"], "canary-law", 120)
    check.seconds = done.seconds
    check.facts["law"] = "caught" if done.code == 1 else "missed"
    if done.code != 1:
        check.fail("canary", f"the law {CANARY} is false and the run of it exits {done.code}")
    if CANARY not in tools.targets:
        check.fail("canary", f"there is no fuzz target {CANARY}")
        check.facts["target"] = "missed"
        return check
    target = tools.targets[CANARY]
    missed = is_caught(tools.programs, target, tools.folder, seeds_of(target, tools.programs.root)[:1],
                       seconds / 2, tools.seed)
    check.facts["target"] = "missed" if missed else "caught"
    if missed:
        check.fail("canary", f"fuzz target {CANARY} fails on purpose and its {missed} build found nothing")
    return check


# Laws and faults on random cases ----------------------------------------------------------------------------------------
def read_report(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}


def law(tools, name, seconds):
    """One law at the size of the full suite or as far as it gets, from the night's seed."""
    report, failures = tools.logs / f"law-{name}.json", tools.folder / "work" / f"failures-{name}"
    done = tools.shardcheck(["run", f"--law={name}", "--suite=full", f"--seed={tools.seed}", f"--jobs={tools.jobs}",
                             f"--time={seconds:.2f}s", "--quiet", f"--failures={failures}",
                             f"--report=json:{report}"], f"law-{name}", seconds + LONGEST_CASE_SECONDS)
    check = Check(seconds=done.seconds)
    if done.timed_out:
        check.verdict = "cut"
        return check
    judged = read_report(report).get("laws", [])
    check.facts["cases"] = sum(entry.get("cases", 0) for entry in judged)
    if done.code == 0:
        return check
    if done.code == 3 and all(TOO_FEW.search(line) for entry in judged for line in entry.get("health", [""])):
        return check  # as many as there was time for
    if done.code == 3:
        check.verdict = "undecided"
        check.notes.append(f"law {name} is undecided: {done.tail(3)}")
        return check
    check.verdict = "failed"
    for path in sorted(failures.glob("*.case")):
        finding = Finding(f"law {name}", why_of(path))
        if not tools.keeper().promote(f"failures-{name}", path, finding, 30):
            finding.file, finding.kept = tools.relative(path), "artifact"
        check.findings.append(finding)
    if not check.findings:
        check.fail(f"law {name}", done.tail(12))
    return check


def fault(tools, name, seconds):
    """One fault under every oracle that must see it, on the recorded and on random cases."""
    report = tools.logs / f"kill-{name}.json"
    done = tools.shardcheck(["kill", f"--fault={name}", f"--seed={tools.seed}", f"--jobs={tools.jobs}", "--cases=20",
                             "--quiet", f"--report=json:{report}"], f"kill-{name}", seconds)
    check = Check(seconds=done.seconds)
    if done.timed_out:
        check.verdict = "cut"
    elif done.code == 3:
        check.verdict = "undecided"
        check.notes.append(f"fault {name} is undecided: {done.tail(3)}")
    elif done.code != 0:
        check.fail(f"fault {name}", done.tail(8))
    return check


# The weekly rotation ----------------------------------------------------------------------------------------------------
def whole_test(tools, seconds):
    """Everything a change must pass, with ThreadSanitizer."""
    done = tools.run([tools.programs.root / "ci/test"], "test", seconds, environment={"SHARDCHECK_TSAN": "1"},
                     folder=tools.programs.root)
    return verdict_of(done, "ci/test with ThreadSanitizer")


def verdict_of(done, what):
    check = Check(seconds=done.seconds)
    if done.timed_out:
        check.verdict = "cut"
    elif done.code != 0:
        check.fail(what, done.tail(20))
    return check


def tidy(tools, seconds):
    """clang-tidy over every file; what time leaves unchecked comes first in the next night."""
    root = tools.programs.root
    for number, command in enumerate((["cmake", "--preset", "ci", "-B", root / "build/tidy", "-DCMAKE_UNITY_BUILD=OFF"],
                                      ["cmake", "--build", root / "build/tidy", "--target", "shardcheck_commit"])):
        done = tools.run(command, f"tidy-{number}", seconds, folder=root)
        if done.code != 0:
            return verdict_of(done, "the build folder of ci/tidy")
    done = tools.run([root / "ci/tidy", f"--build={root / 'build/tidy'}", f"--budget={int(seconds * 0.8)}"], "tidy",
                     seconds, folder=root)
    found = re.search(r"(\d+) with findings, (\d+) unchecked", done.text())
    check = verdict_of(done, "clang-tidy")
    if found and found[1] == "0" and found[2] != "0":
        return Check("cut", done.seconds, notes=[f"clang-tidy left {found[2]} files for the next night"])
    return check
