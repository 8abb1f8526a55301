#!/usr/bin/python3
"""Tests of ci/tidy with a stand-in for clang-tidy that finds fault with every file that says "bad" and with those that
include one, and a test with the real one."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import tempfile
import unittest
from pathlib import Path

_loader = importlib.machinery.SourceFileLoader("tidy", str(Path(__file__).resolve().parent / "tidy"))
tidy = importlib.util.module_from_spec(importlib.util.spec_from_loader("tidy", _loader))
_loader.exec_module(tidy)
REAL_TIDY = tidy.TIDY


class Tidy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        self.build = self.root / "build"
        self.build.mkdir()
        stand_in = self.root / "stand-in"
        stand_in.write_text('#!/bin/sh\nfor file; do :; done\n[ "$1" = --version ] && echo 1 && exit\n'
                            'case "$*" in *analyzer*) echo "$file" >>"$0.without-analyzer";; esac\n'
                            'echo "$file" >>"$0.visited"\n'
                            'set -- "$file" $(sed -n \'s/^#include "\\(.*cc\\)"$/\\1/p\' "$file")\n! grep -hn bad "$@"\n')
        stand_in.chmod(0o755)
        self.visited, self.without_analyzer = Path(f"{stand_in}.visited"), Path(f"{stand_in}.without-analyzer")
        tidy.ROOT, tidy.CACHE, tidy.TIDY = self.root, self.build / "tidy-cache", str(stand_in)
        (self.root / ".clang-tidy").write_text("Checks: '*'\n")
        (self.root / "a.h").write_text("// header\n")
        self.write("a.cc", '#include "a.h"\nstatic int same;\n')
        self.write("b.cc", "static int same;\n")
        self.write("c_test.cc", "static int same;\n")

    def write(self, name, text):
        (self.root / name).write_text(text)
        sources = [str(path) for path in self.root.glob("*.cc")]
        commands = [{"file": source, "directory": str(self.build), "command": f"c++ -c {source}"} for source in sources]
        (self.build / "compile_commands.json").write_text(json.dumps(commands))

    def run_tidy(self, *words):
        self.visited.write_text("")
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = tidy.main([f"--build={self.build}", *words])
        return code, out.getvalue(), sorted(Path(line).name for line in self.visited.read_text().split())

    def test_every_file_is_visited_and_clean_ones_once(self):
        self.assertEqual(self.run_tidy(), (0, "", ["a.cc", "b.cc", "c_test.cc"]))
        self.assertEqual(self.run_tidy(), (0, "", []))

    def test_a_changed_header_or_file_is_visited_again(self):
        self.run_tidy()
        (self.root / "a.h").write_text("// changed\n")
        self.write("b.cc", "static int same;  // changed\n")
        self.assertEqual(self.run_tidy(), (0, "", ["a.cc", "b.cc"]))

    def test_a_finding_fails_until_it_is_gone(self):
        self.write("b.cc", "// bad\n")
        for _ in range(2):
            code, text, _ = self.run_tidy()
            self.assertEqual((code, text), (1, "1:// bad\n"))
        self.write("b.cc", "// mended\n")
        self.assertEqual(self.run_tidy()[0], 0)

    def test_files_whose_names_do_not_clash_are_visited_together(self):
        self.write("d.cc", "static int other;\n")
        code, text, visited = self.run_tidy()
        self.assertEqual((code, text), (0, ""))
        self.assertEqual(visited, ["UnifiedSource-0.cc", "b.cc", "c_test.cc"])
        self.assertEqual(self.run_tidy(), (0, "", []))

    def test_a_test_is_visited_without_what_it_tests(self):
        self.write("c_test.cc", "static int third;\n")
        self.assertEqual(self.run_tidy(), (0, "", ["a.cc", "b.cc", "c_test.cc"]))

    def test_a_finding_among_files_visited_together_is_of_its_file_alone(self):
        self.write("d.cc", "static int other;  // bad\n")
        code, text, visited = self.run_tidy()
        self.assertEqual((code, text), (1, "1:static int other;  // bad\n"))
        self.assertEqual(visited, ["UnifiedSource-0.cc", "a.cc", "b.cc", "c_test.cc", "d.cc"])
        self.assertEqual(self.run_tidy()[2], ["d.cc"])

    def test_the_real_one_sees_in_files_together_what_it_sees_in_each(self):
        tidy.TIDY = REAL_TIDY
        house = Path(__file__).resolve().parent.parent
        (self.root / ".clang-tidy").write_text((house / ".clang-tidy").read_text())
        (self.root / "lib").mkdir()
        bugs = {"use_after_move": "int f(std::string s) { return int(std::string(std::move(s)).size() + s.size()); }",
                "analyzer": "int g(const int* p) { return p == nullptr ? *p : 1; }"}
        for name, text in bugs.items():
            self.write(f"lib/{name}.cc", f"#include <string>\n#include <utility>\n\n{text}\n")
        files = [self.root / "lib" / f"{name}.cc" for name in bugs]
        commands = {file: {"file": str(file), "directory": str(self.build), "command": f"c++ -c {file}"} for file in files}
        tidy.CACHE.mkdir()
        together = tidy.joined(files, commands)
        self.assertEqual(len(together), 1)
        [unit] = tidy.write_units(together, commands).values()
        _, text = tidy.check(unit, unit.parent)
        for name in bugs:
            self.assertIn(f"lib/{name}.cc:4", text)

    def test_what_the_budget_leaves_unchecked_is_named_and_fails(self):
        code, text, visited = self.run_tidy("--budget=0")
        self.assertEqual((code, visited), (1, []))
        for name in ("a.cc", "b.cc", "c_test.cc"):
            self.assertIn(f"{name}: unchecked", text)

    def test_only_tests_are_spared_the_analyzer(self):
        self.run_tidy()
        self.assertEqual([Path(line).name for line in self.without_analyzer.read_text().split()], ["c_test.cc"])

    def test_without_a_build_nothing_is_said_to_be_clean(self):
        (self.build / "compile_commands.json").unlink()
        self.assertEqual(self.run_tidy()[0], 4)


if __name__ == "__main__":
    unittest.main()
