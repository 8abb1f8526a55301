"""What the scripts of this folder share that run fuzz targets of a build folder."""
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SEEDS = ROOT / "corpus" / "seeds"
STATISTIC = re.compile(r"^stat::(\w+):\s+(\d+)$", re.M)
FINDING = re.compile(r"^finding: \w+: (.*)$", re.M)


class NoBuild(Exception):
    """The build folder holds no fuzz targets."""


class Build:
    """A build of the preset fuzz, or another one with fuzz targets."""

    def __init__(self, folder):
        self.folder = Path(folder) / "fuzz"
        self.replay = self.folder / "fuzz_replay"
        if not self.replay.exists():
            raise NoBuild(f"{self.replay} is missing: cmake --preset fuzz && "
                          "cmake --build --preset fuzz --target fuzz_replay fuzz_targets")

    def targets(self):
        """Names of the targets that libFuzzer can run, in order."""
        lines = self.answer("--list").splitlines()
        return [name for name in (line.split("\t")[0] for line in lines) if (self.folder / f"fuzz_{name}").exists()]

    def answer(self, *arguments):
        return subprocess.run([self.replay, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout

    def expand_seeds(self, target, folder):
        """The target's seeds as libFuzzer reads them."""
        self.answer(f"--target={target}", f"--expand={folder}", str(SEEDS / target))

    def write_dictionary(self, target, file):
        Path(file).write_text(self.answer(f"--target={target}", "--dictionary"))

    def run(self, target, arguments, cwd, planted="", seconds=None):
        """One run of libFuzzer; (exit code, what it wrote). Artifacts land in `cwd`."""
        environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=1:allocator_may_return_null=1:handle_abort=1",
                           UBSAN_OPTIONS="print_stacktrace=1")
        environment.pop("SHARDCHECK_PLANTED_FAULT", None)
        if planted:
            environment["SHARDCHECK_PLANTED_FAULT"] = planted
        process = subprocess.run([self.folder / f"fuzz_{target}", *arguments, "-print_final_stats=1"], cwd=cwd,
                                 env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds)
        return process.returncode, process.stdout.decode("utf-8", "replace")


def statistics(text):
    """libFuzzer's final figures by name."""
    return {name: int(value) for name, value in STATISTIC.findall(text)}


def finding(text):
    """The message of the finding that ended a run, empty without one."""
    found = FINDING.search(text)
    return found[1] if found else ""
