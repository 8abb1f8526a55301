#!/usr/bin/python3
"""Tests of ci/units.py: what may share a translation unit and what may not."""
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
import units  # noqa: E402


class Units(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def units_of(self, **texts):
        files = []
        for name, text in texts.items():
            files.append(self.root / name.replace("__", "/"))
            files[-1].parent.mkdir(exist_ok=True)
            files[-1].write_text(text)
        return [[file.name for file in unit] for unit in units.units(files)]

    def test_names_at_the_left_margin_are_found(self):
        for text, name in {"constexpr int kSize = 1;": "kSize", "struct Case {": "Case", "enum class Kind { kA };": "Kind",
                           "using Row = int;": "Row", "std::vector<int> rows(const X& x = {}) {": "rows",
                           "const std::array<int, 2> kPair = {1, 2};": "kPair", "class Sink final : Base {": "Sink",
                           "Outcome check(const Case& c, Subject& s) {": "check", "int table[] = {": "table"}.items():
            self.assertEqual(units.names(f"namespace a {{\nnamespace {{\n{text}\n}}  // namespace\n"), {name}, text)

    def test_what_clashes_with_nothing_has_no_name(self):
        for text in ("namespace {", "  int inside = 1;", "}  // namespace", "void Case::print(int x) {", "#include <a.h>",
                     "using testing::Each;", "TEST(Suite, Name) {", "template <class T>", "// struct Case {", ""):
            self.assertEqual(units.names(f"namespace {{\n{text}\n"), set(), text)
        self.assertEqual(units.names("namespace {\n}  // namespace\nint declared_in_a_header() {\n"), set())
        self.assertEqual(units.names("static int f() {\nconst int k = 1;\nstruct S {\n"), {"f", "k", "S"})

    def test_a_name_that_one_file_defines_is_in_no_other(self):
        self.assertEqual(self.units_of(a="static int f() {\n", b="static int g() {\n", c="static void f(int) {\n"), [["a", "b"], ["c"]])
        self.assertEqual(self.units_of(a="static int f() {\n", b="  f();\n", c="  // f\n"), [["a", "c"], ["b"]])

    def test_a_unit_stays_in_its_folder_and_small(self):
        self.assertEqual(self.units_of(x__a="", y__b="", x__c=""), [["a", "c"], ["b"]])
        many = {f"f{index:02}": "" for index in range(units.MOST_FILES + 1)}
        self.assertEqual([len(unit) for unit in self.units_of(**many)], [units.MOST_FILES, 1])

    def test_what_includes_itself_is_alone(self):
        self.assertEqual(self.units_of(a="", b='#include "hwy/foreach_target.h"\n', c=""), [["a", "c"], ["b"]])


if __name__ == "__main__":
    unittest.main()
