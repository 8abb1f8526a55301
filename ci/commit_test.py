#!/usr/bin/python3
"""Tests of the commit a build reports. Usage: ci/commit_test.py PROGRAM, the program of a finished build."""
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "cmake" / "WriteCommit.cmake"
PROGRAM = None  # the first argument
GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false", "-C"]


class Commit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name) / "source"
        self.header = Path(folder.name) / "build_commit.h"
        self.root.mkdir()
        (self.root / "file").write_text("first\n")

    def git(self, *words):
        return subprocess.run([*GIT, self.root, *words], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def commit(self):
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "first")
        return self.git("rev-parse", "HEAD")[:12]

    def written(self, source=None):
        subprocess.run(["cmake", f"-DSOURCE={source or self.root}", f"-DHEADER={self.header}", "-P", SCRIPT], check=True)
        return re.search(r'SHARDCHECK_COMMIT "(.*)"', self.header.read_text())[1]

    def test_a_clean_tree_is_its_commit(self):
        self.assertEqual(self.written(self.root), "unknown")
        head = self.commit()
        self.assertEqual(self.written(), head)

    def test_a_changed_or_new_file_is_dirty_and_an_ignored_one_is_not(self):
        head = self.commit()
        (self.root / "file").write_text("second\n")
        self.assertEqual(self.written(), head + "-dirty")
        (self.root / "file").write_text("first\n")
        self.assertEqual(self.written(), head)
        (self.root / "new.cc").write_text("new\n")
        self.assertEqual(self.written(), head + "-dirty")
        (self.root / ".git" / "info" / "exclude").write_text("new.cc\n")
        self.assertEqual(self.written(), head)

    def test_an_archive_inside_another_tree_is_unknown(self):
        (self.root / "archive").mkdir()
        (self.root / "archive" / "file").write_text("unpacked\n")
        self.commit()
        self.assertEqual(self.written(self.root / "archive"), "unknown")

    def test_the_header_is_written_only_when_it_changes(self):
        self.commit()
        self.written()
        os.utime(self.header, (1, 1))
        self.written()
        self.assertEqual(self.header.stat().st_mtime, 1)
        (self.root / "file").write_text("second\n")
        self.written()
        self.assertGreater(self.header.stat().st_mtime, 1)

    def test_the_program_reports_what_the_build_wrote(self):
        header = Path(PROGRAM).resolve().parents[2] / "tolerance" / "generated" / "build_commit.h"
        written = re.search(r'SHARDCHECK_COMMIT "(.*)"', header.read_text())[1]
        self.assertRegex(written, r"^([0-9a-f]{12}(-dirty)?|unknown)$")
        printed = subprocess.run([PROGRAM, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertRegex(printed, rf"^shardcheck \S+ \(commit {written}\)\n$")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PROGRAM = sys.argv.pop(1)
    unittest.main()
