"""One target under libFuzzer: the fast build explores, the sanitizer build checks, both over one corpus, which a merge
then makes minimal."""
import re
import shutil
import zlib
from dataclasses import asdict, dataclass, field

from night import process

FAST_SHARE = 0.4  # of a target's time; the sanitizers check what the fast build found, and search too
LEAST_MERGE_SECONDS = 2.0
MERGE_SHARE = 0.15
# One input, in seconds; under sanitizers it is slower, and beside other work slower again.
FAST_TIMEOUT, SANITIZED_TIMEOUT = 2, 10
START_SECONDS = 30.0  # beyond its time a fuzzer is ended
STATUS = re.compile(r"^#(\d+):?\s.*?cov: (\d+) ft: (\d+) corp: (\d+).*?exec/s:? (\d+)", re.M)
ARTIFACT = re.compile(r"(crash|leak|timeout|oom)-[0-9a-f]+")


@dataclass
class Fuzzed:
    """What came of a target's time."""
    target: str
    executions: int = 0
    seconds: float = 0.0
    covered: int = 0   # edges, as libFuzzer counts them in the sanitizer build
    inputs: int = 0    # of the corpus after the merge
    merged: bool = False
    artifacts: list = field(default_factory=list)
    problems: list = field(default_factory=list)

    def as_json(self):
        fields = asdict(self)
        fields["artifacts"] = len(self.artifacts)
        return fields

    @property
    def per_second(self):
        return self.executions / self.seconds if self.seconds > 0 else 0.0


def status_of(text):
    """(executions, edges) of the last status line of a log; zeros without one."""
    lines = STATUS.findall(text)
    return (int(lines[-1][0]), int(lines[-1][1])) if lines else (0, 0)


def seed_of(seed, *words):
    """A seed for libFuzzer, positive and of 31 bits: a function of the night's and of what it is for."""
    return zlib.crc32(" ".join([str(seed), *words]).encode()) & 0x7FFFFFFF or 1


class Fuzzer:
    def __init__(self, programs, target, folder, seeds, jobs, seed):
        """`folder` is the state's; `seeds` files and folders of the corpus that are inputs of the target."""
        self.programs, self.target, self.jobs, self.seed = programs, target, jobs, seed
        self.corpus = folder / "corpus" / target.name
        self.work = folder / "work" / target.name
        self.seeds = [path for path in seeds if path.exists()]
        self.result = Fuzzed(target.name)

    def prepare(self):
        """Empty folders for artifacts, raw seeds, the dictionary."""
        shutil.rmtree(self.work, ignore_errors=True)
        for name in ("artifacts", "seeds", "merged"):
            (self.work / name).mkdir(parents=True)
        self.corpus.mkdir(parents=True, exist_ok=True)
        name = f"--target={self.target.name}"
        if self.seeds:
            self._helper(["--expand=" + str(self.work / "seeds"), name, *self.seeds], "seeds")
        if self._helper(["--dictionary", name], "dictionary"):
            shutil.copy(self.work / "dictionary.log", self.work / "dictionary")

    def _helper(self, words, what):
        done = process.run([self.programs.fuzz_replay(), *words], self.work / f"{what}.log", seconds=60)
        if done.code != 0:
            self.result.problems.append(f"{what} of {self.target.name}: {done.tail(3)}")
        return done.code == 0

    def command(self, build, options, folders):
        words = [build / f"fuzz_{self.target.name}", *(f"-{key}={value}" for key, value in options.items())]
        if (self.work / "dictionary").exists() and "merge" not in options:
            words.append(f"-dict={self.work / 'dictionary'}")
        return words + list(folders)

    def explore(self, build, seconds, timeout, what):
        """Fuzzes for so long with as many processes as jobs; goes on after a crash."""
        seconds = max(1, int(seconds))
        options = {"fork": self.jobs, "ignore_crashes": 1, "max_total_time": seconds, "timeout": timeout,
                   "seed": seed_of(self.seed, self.target.name, what),
                   "artifact_prefix": f"{self.work / 'artifacts'}/", "print_final_stats": 1}
        done = process.run(self.command(build, options, [self.corpus, self.work / "seeds"]),
                           self.work / f"{what}.log", seconds + START_SECONDS, environment=sanitizer_options())
        executions, edges = status_of(done.text())
        self.result.executions += executions
        self.result.seconds += done.seconds
        if what == "sanitized":
            self.result.covered = edges
        if executions == 0 and not self.found():
            self.result.problems.append(f"fuzz_{self.target.name} ({what}) executed nothing: {done.tail(3)}")

    def merge(self, seconds):
        """The corpus, seeds included, without what adds no feature; the old one stays when time runs out."""
        merged = self.work / "merged"
        done = process.run(self.command(self.programs.sanitized, {"merge": 1, "timeout": SANITIZED_TIMEOUT},
                                        [merged, self.corpus, self.work / "seeds"]),
                           self.work / "merge.log", max(LEAST_MERGE_SECONDS, seconds), environment=sanitizer_options())
        if done.code == 0 and any(merged.iterdir()):
            old = self.work / "old"
            self.corpus.rename(old)
            merged.rename(self.corpus)
            shutil.rmtree(old)
            self.result.merged = True
        self.result.inputs = sum(1 for _ in self.corpus.iterdir())

    def found(self):
        return sorted(path for path in (self.work / "artifacts").iterdir() if ARTIFACT.fullmatch(path.name))

    def run(self, seconds):
        self.prepare()
        merging = max(LEAST_MERGE_SECONDS, MERGE_SHARE * seconds)
        exploring = max(2.0, seconds - merging)
        self.explore(self.programs.fast, FAST_SHARE * exploring, FAST_TIMEOUT, "fast")
        self.explore(self.programs.sanitized, exploring - FAST_SHARE * exploring, SANITIZED_TIMEOUT, "sanitized")
        self.merge(merging)
        self.result.artifacts = self.found()
        return self.result


def sanitizer_options():
    return {"ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1",
            "UBSAN_OPTIONS": "print_stacktrace=1"}


def is_caught(programs, target, folder, seeds, seconds, seed):
    """Whether both builds of a target that must fail do: name of the build that did not, or nothing."""
    for what, build in (("fast", programs.fast), ("sanitized", programs.sanitized)):
        fuzzer = Fuzzer(programs, target, folder, seeds, 1, seed)
        fuzzer.prepare()
        options = {"max_total_time": max(1, int(seconds)), "seed": seed_of(seed, target.name, what),
                   "artifact_prefix": f"{fuzzer.work / 'artifacts'}/"}
        done = process.run(fuzzer.command(build, options, [fuzzer.corpus, fuzzer.work / "seeds"]),
                           fuzzer.work / f"{what}.log", seconds + START_SECONDS, environment=sanitizer_options())
        if done.code == 0 or not fuzzer.found():
            return what
    return None


def seeds_of(target, root):
    """Files and folders whose content is an input of the target: its seeds, and for targets that take cases those of
    the corpus."""
    seeds = [root / "corpus/seeds" / target.name]
    return [*seeds, root / "corpus/regressions"] if target.takes_cases else seeds
