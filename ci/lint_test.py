#!/usr/bin/python3
"""Tests of ci/lint: a good tree has no finding, and each rule fires on a tree with its one mistake."""
import importlib.machinery
import importlib.util
import tempfile
import unittest
from pathlib import Path

_loader = importlib.machinery.SourceFileLoader("lint", str(Path(__file__).resolve().parent / "lint"))
lint = importlib.util.module_from_spec(importlib.util.spec_from_loader("lint", _loader))
_loader.exec_module(lint)

HEADER = "// Says what it is.\n#pragma once\n\n#include <vector>\n"
LAW = ('#include "shardcheck/properties/law.h"\n\nnamespace shardcheck::laws {\n'
       'const Law& good() {\n  static const Law law = {.name = "good"};\n  return law;\n}\n'
       "}  // namespace shardcheck::laws\n")
GOOD = {
    "CMakeLists.txt": "project(Good)\n", "README.md": "Good\n", "CONTRIBUTING.md": "Good\n", "LICENSE": "Good\n",
    "docs/a.md": "Use / and a/b/c freely; see docs/work/notes.\n", "bench/a.md": "Good\n", "examples/a.md": "Good\n",
    "ci/script": "#!/usr/bin/env bash\necho good\n", "corpus/case.txt": "good d_model=64\n",
    "fuzz/README.md": "Good\n", "tolerance/floor.json": '{"a": 1, "b": {"a": 1}}\n',
    "lib/include/shardcheck/tensor/good.h": HEADER,
    "lib/src/arithmetic/good.cc": "// std::exp( is only named here\nfloat f(float x) { return std::sqrt(x); }\n",
    "lib/src/names.cc": "using std::string;\nstring f();\nstruct D : B {\n  using B::B;\n};\n",
    "lib/src/long_table.cc": "const int kTable[] = {\n" + "  1,\n" * 100 + "};\n",
    "lib/src/long_class.cc": "class A {\n public:\n" + "  void f() {}\n" * 100 + "};\n",
    "lib/src/flags.cc": 'bool contracted(S f) { return f.contains("-ff" "ast-math"); }\n',
    "lib/CMakeLists.txt": "target_compile_options(a PRIVATE -fno-f" "ast-math)\n",
    "lib/src/literals.cc": 'const char* kText = R"(\n' + "}{\n" * 100 + ')";\nconst char kBrace = \'{\';\n',
    "lib/cli/subcommands/run.cc": 'const Subcommand& run() {\n  static const Subcommand s = {"run"};\n  return s;\n}\n',
    "properties/laws/good.cc": LAW,
    "properties/src/runner.cc": "#include <rapidcheck.h>\n#include \"shardcheck/mutators/fault.h\"\n",
    "properties/include/shardcheck/testing.h": "// Says what it is.\n#pragma once\n#include <gtest/gtest.h>\n",
    "mutators/faults/README.md": "Good\n", "lib/tests/shape_test.cc": "TEST(Shape, Prints) { EXPECT_TRUE(f()); }\n",
    "docs/seed-parity.md": "`Shape.Prints` and `LawHolds.good`\n",
    "lib/README.md": "See [the house](../README.md#top).\n\n| header | says |\n|---|---|\n| `tensor/good.h` | it is good |\n",
    "lib/cli/options.h": "#include <boost/program_options.hpp>\n#define SHARDCHECK_HELP 1\n",
    "lib/tests/long_test.cc": "// line\n" * 800, "lib/src/text/simd-inl.h": "// line\n" * 400,
    "CMakePresets.json": '{"configurePresets": [{"name": "a", "cacheVariables": {"SHARDCHECK_ASSERTS": "ON"}}, {"name": '
                         '"b", "inherits": ["a"]}], "testPresets": [{"name": "b", "configurePreset": "b"}]}\n',
}

# rule -> trees that break it: {path: content}; None removes the path. Words are split as in the lint itself.
BAD = {
    "top_level_is_complete": [{"LICENSE": None}, {"corpus/case.txt": None}],
    "one_thing_per_file": [
        {"properties/laws/other.cc": LAW},
        {"properties/laws/good.cc": LAW + "const Law& second() {\n  return good();\n}\n"},
        {"properties/laws/good.cc": LAW.replace('"good"', '"other"')},
        {"mutators/faults/empty.cc": '// "empty"\n'},
        {"lib/cli/subcommands/kill.cc": 'const Subcommand& run() {\n  static const Subcommand s{"kill"};\n}\n'},
    ],
    "includes_follow_the_arrows": [
        {"lib/src/a.cc": '#include "shardcheck/tolerance/floor.h"\n'},
        {"lib/include/shardcheck/tensor/good.h": HEADER + '#include "shardcheck/testing.h"\n'},
        {"tolerance/src/a.cc": '#include "shardcheck/mutators/fault.h"\n'},
        {"mutators/src/a.cc": '#  include "shardcheck/properties/law.h"\n'},
        {"properties/src/a.cc": '#include "shardcheck/fuzz/editor.h"\n'},
    ],
    "laws_faults_and_generators_are_framework_free": [
        {"properties/laws/good.cc": "#include <gtest/gtest.h>\n" + LAW},
        {"properties/generators/a.cc": "#include <rapidcheck/Gen.h>\n"},
        {"mutators/faults/a.h": "#include <mpi.h>\n"},
        {"mutators/faults/b.h": "#include <boost/mpi.hpp>\n"},
    ],
    "boost_stays_in_the_program": [
        {"lib/src/a.cc": "#include <boost/program_options.hpp>\n"},
        {"properties/src/a.h": "#include <boost/any.hpp>\n"},
    ],
    "public_headers_say_what_they_are": [
        {"tolerance/include/shardcheck/a.h": "#pragma once\n// Late.\n"},
        {"tolerance/include/shardcheck/a.h": "// Says what it is.\n#include <vector>\n#pragma once\n"},
        {"tolerance/include/shardcheck/a.h": "// Says what it is.\n"},
    ],
    "readmes_list_every_public_header": [
        {"lib/include/shardcheck/tensor/other.h": HEADER},
        {"lib/README.md": "| `tensor/good.h` | it is good |\n| `tensor/gone.h` | it was good |\n"},
    ],
    "links_lead_somewhere": [{"docs/a.md": "see [it](b.md)\n"}, {"README.md": "see [it](docs/none.md#part)\n"}],
    "using_declarations_are_used": [
        {"lib/src/a.cc": "using std::string;\n// string is named here\n"},
        {"lib/tests/a_test.cc": "void f() {\n  using ::testing::Each;\n}\n"},
    ],
    "names_have_one_spelling": [
        {"lib/src/BigName.cc": "// Good\n"}, {"lib/src/a.h": "#pragma once\n#define OTHER_HELP 1\n"},
    ],
    "speaks_of_the_project_alone": [
        {"docs/a.md": text + "\n"}
        for text in ("as req" "uested", "see iss" "ue 12", "see Iss" "ue #12", "written by Cl" "aude", "an AI ag" "ent")
    ],
    "files_are_short": [
        {"lib/src/a.cc": "// line\n" * 401}, {"lib/tests/long_test.cc": "// line\n" * 801},
        {"lib/cli/verification.cc": "// line\n" * 420},
    ],
    "flags_are_on_targets": [
        {"lib/CMakeLists.txt": text + "\n"}
        for text in ("add_compile_options(-O1)", "include_directories(a)", 'set(CMAKE_CXX_FLAGS "-O1")')
    ],
    "presets_that_test_keep_asserts": [
        {"CMakePresets.json": '{"configurePresets": [{"name": "a"}], "testPresets": [{"name": "b", "configurePreset": '
                              '"a"}]}\n'},
    ],
    "public_headers_hide_third_parties": [
        {"tolerance/include/shardcheck/a.h": HEADER + f"#include <{name}>\n"}
        for name in ("rapidcheck.h", "boost/any.hpp", "gtest/gtest.h", "nlohmann/json.hpp", "fmt/core.h", "hwy/base.h")
    ],
    "nothing_is_left_open": [{"docs/a.md": word + ": later\n"} for word in ("TO" "DO", "FIX" "ME", "XX" "X")],
    "no_machine_paths": [{"docs/a.md": f"see /{folder}/me/x\n"} for folder in ("ho" "me", "ro" "ot", "tm" "p")],
    "whitespace_is_clean": [{"docs/a.md": text} for text in ("a \n", "a\tb\n", "a\r\n", "a")],
    "cpp_lines_are_short": [{"lib/src/a.cc": "// " + "a" * 108 + "\n"}],
    "arithmetic_owns_its_functions": [
        {"lib/src/arithmetic/a.cc": "float f(float x) { return std::exp(x); }\n"},
        {"lib/src/model/a.cc": "float f(float x) { return cosf(x); }\n"},
        {"lib/src/model/a.cc": "float f() { return std::accumulate(v.begin(), v.end(), 0.0F); }\n"},
    ],
    "no_fast_math": [
        {"lib/CMakeLists.txt": "target_compile_options(a PRIVATE -ff" "ast-math)\n"},
        {"lib/src/a.cc": "#pragma GCC optimize (\"O3\")\n"},
    ],
    "functions_fit_a_screen": [
        {"lib/src/a.cc": "namespace a {\nint f(int x) {\n" + "  ++x;\n" * 90 + "  return x;\n}\n}\n"},
        {"lib/src/a.cc": "struct A {\n  void f() const {\n    if (true) {\n" + "      g();\n" * 90 + "    }\n  }\n};\n"},
        {"lib/src/a.cc": "const auto f = [](int x) {\n" + "  ++x;\n" * 90 + "};\n"},
        {"lib/src/a.cc": "A::A(int x) : a_{x},\n b_(x) {\n" + "  ++x;\n" * 90 + "}\n"},
    ],
    "corpus_is_text": [{"corpus/seeds/a": b"\x00\x01"}, {"corpus/seeds/a": b"\xff\xfe"}],
    "json_parses": [{"lib/layouts/a.json": text} for text in ('{"a": 1,}\n', '{"a": 1, "a": 2}\n')],
    "files_are_small": [{"docs/a.md": "a\n" * 300000}],
    "tests_can_fail": [
        {"lib/tests/a_test.cc": "TEST(A, B) { GTEST_" "SKIP() << 1; }\n"},
        {"lib/tests/a_test.cc": "TEST(A, DISABLED" "_B) { EXPECT_EQ(1, 1); }\n"},
        {"lib/tests/a_test.cc": "TEST(A, B) { SUC" "CEED(); }\n"},
    ],
    "documented_tests_exist": [
        {"docs/seed-parity.md": "`Shape.Prints` `LawHolds.better`\n"}, {"docs/seed-parity.md": "`Shape.Print`\n"},
    ],
    "shell_scripts_parse": [{"ci/script": "#!/usr/bin/env bash\nif true; then\n"}],
}


def findings(changes):
    """Rules that fire on the good tree with some files replaced."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, content in {**GOOD, **changes}.items():
            if content is None:
                continue
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content if isinstance(content, bytes) else content.encode())
        return lint.lint(root)


class Lint(unittest.TestCase):
    def test_a_good_tree_has_no_finding(self):
        self.assertEqual(findings({}), [])

    def test_every_rule_has_a_bad_tree(self):
        self.assertEqual(sorted(BAD), sorted(check.__name__ for check in lint.RULES))

    def test_each_rule_fires_alone_and_names_the_file(self):
        for name, trees in BAD.items():
            for tree in trees:
                with self.subTest(rule=name, tree={path: str(text)[:60] for path, text in tree.items()}):
                    found = findings(tree)
                    self.assertEqual({finding[0] for finding in found}, {name})
                    changed = next(iter(tree))
                    self.assertTrue(all(changed.startswith(finding[1]) for finding in found), found)
                    self.assertTrue(all(finding[2] >= 1 and finding[3] for finding in found))


if __name__ == "__main__":
    unittest.main()
