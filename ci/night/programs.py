"""The programs a night runs: where they are, and how they are built. Building is not in the night's time."""
import os
from dataclasses import dataclass
from pathlib import Path

from night import process

# Preset, what is built of it.
SANITIZED = ("fuzz", ["fuzz_replay", "fuzz_targets"])
FAST = ("fuzz-fast", ["fuzz_replay", "fuzz_targets"])
RELEASE = ("release", ["shardcheck"])


class BuildFailed(Exception):
    """With the end of the log."""


@dataclass
class Target:
    name: str
    format: str  # case_line, text, json, safetensors
    claim: str

    @property
    def takes_cases(self):
        return self.format in ("case_line", "text")


@dataclass
class Programs:
    """`root` is the source tree; `sanitized` and `fast` are folders with fuzz_replay and one fuzz_TARGET each."""
    root: Path
    shardcheck: Path
    sanitized: Path
    fast: Path

    @classmethod
    def of(cls, root):
        build = root / "build"
        return cls(root, build / "release/lib/cli/shardcheck", build / "fuzz/fuzz", build / "fuzz-fast/fuzz")

    def fuzz_replay(self):
        return self.fast / "fuzz_replay"

    def targets(self, log):
        """Every target that fuzz_replay lists, NAME TAB FORMAT TAB LARGEST TAB CLAIM a line."""
        listed = process.run([self.fuzz_replay(), "--list"], log, seconds=60)
        if listed.code != 0:
            raise BuildFailed(f"{self.fuzz_replay()} --list failed:\n{listed.tail()}")
        rows = [line.split("\t") for line in listed.text().splitlines() if line.count("\t") >= 3]
        return {row[0]: Target(row[0], row[1], row[3]) for row in rows}


def build(root, preset, targets, logs, jobs=None):
    """Configures and builds what a preset has of the targets. Raises BuildFailed."""
    steps = {"configure": ["cmake", "--preset", preset],
             "build": ["cmake", "--build", "--preset", preset, "-j", str(jobs or os.cpu_count()), "--target", *targets]}
    for step, command in steps.items():
        done = process.run(command, logs / f"{preset}.{step}.log", folder=root)
        if done.code != 0:
            raise BuildFailed(f"preset {preset} does not {step}:\n{done.tail()}")


def build_all(programs, logs, jobs):
    for preset, targets in (RELEASE, FAST, SANITIZED):
        build(programs.root, preset, targets, logs, jobs)
    return programs
