#!/usr/bin/python3
"""Tests of ci/nightly with stand-ins for its programs: a shardcheck, a fuzz_replay and fuzz targets that find what the
files of a folder tell them to."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
CI = Path(__file__).resolve().parent
sys.path.insert(0, str(CI))
from night import budget, coverage, findings, fuzzing, process, schedule, state, summary  # noqa: E402
from night.programs import Programs, Target  # noqa: E402

_loader = importlib.machinery.SourceFileLoader("nightly", str(CI / "nightly"))
nightly = importlib.util.module_from_spec(importlib.util.spec_from_loader("nightly", _loader))
_loader.exec_module(nightly)

# What the programs do is said by files in $FAKE: law-NAME holds the exit code of a law's run, and so on.
SHARDCHECK = r"""#!/bin/sh
echo "$*" >>"$FAKE/calls"
code() { cat "$FAKE/$1" 2>/dev/null || echo "$2"; }
case "$1 $2" in
  "list laws") printf '  law               claim\n  ranks_agree       Ranks agree.\n  split_inverts_gather  It does.\n';;
  "list faults") printf '  fault       family\n  swap_ranks  R rank  plan\n    Ranks are swapped.\n';;
  "corpus verify") echo "PASSED  3 cases in 2 files, 0 wrong   0.1 s"; exit "$(code corpus 0)";;
  "corpus promote") [ -f "$FAKE/promotes" ] || exit 3
    for word; do case "$word" in --to=*) to=${word#--to=};; esac; done
    printf '# why: it is wrong\nranks_agree heads=2\n' >"$to/ranks_agree_heads_2.case"
    printf 'minimal after 7 cases:\n  ranks_agree heads=2\n  it is wrong\nwritten to %s/ranks_agree_heads_2.case\n' "$to";;
  "replay "*) exit "$(code replay 3)";;
  "run --law=canary") exit "$(code canary-law 1)";;
  "run --law="*) name=${2#--law=}
    if [ -f "$FAKE/health-$name" ]; then
      for word; do case "$word" in --report=json:*) to=${word#--report=json:};; esac; done
      printf '{"laws": [{"cases": 12, "health": ["%s"]}]}' "$(cat "$FAKE/health-$name")" >"$to"
    fi
    if [ -f "$FAKE/failing-$name" ]; then
      for word; do case "$word" in --failures=*) to=${word#--failures=};; esac; done
      mkdir -p "$to"; printf '# why: ranks differ\nranks_agree heads=9\n' >"$to/x.case"
    fi
    exit "$(code "law-$name" 0)";;
  "kill --fault="*) exit "$(code "kill-${2#--fault=}" 0)";;
esac
"""
REPLAY = r"""#!/bin/sh
case "$*" in
  --list) printf 'canary\tjson\t64\tFails.\nindex_json\tjson\t64\tIt is refused.\nplan_differential\tcase_line\t64\tEqual.\n';;
  *--dictionary) echo '"word"';;
  *--expand=*) ;;
  *) exit "$(cat "$FAKE/seeds" 2>/dev/null || echo 0)";;
esac
"""
# A fuzzer: finds an artifact where the file crash-TARGET is there; a single input fails when it holds "bad".
FUZZER = r"""#!/bin/sh
target=${0##*fuzz_}
echo "$0 $*" >>"$FAKE/calls"
for word; do
  case "$word" in -artifact_prefix=*) prefix=${word#*=};; -merge=1) merge=1;; -exact_artifact_path=*) exact=${word#*=};;
    -max_total_time=*) seconds=${word#*=};; -*) ;; *) last=$word; [ "$first" ] || first=$word;; esac
done
if [ "$exact" ]; then printf bad >"$exact"; exit 1; fi
if [ "$merge" ]; then echo minimal >"$first/minimal"; exit 0; fi
if [ -f "$last" ]; then
  grep -q bad "$last" || exit 0
  echo "finding: $target: value $(wc -c <"$last") is wrong" >&2; exit 77
fi
echo "#4096: cov: 120 ft: 300 corp: 7 exec/s 2048 oom/timeout/crash: 0/0/0 time: 2s job: 1 dft_time: 0" >&2
echo "input of $seconds" >"$first/input"
[ -f "$FAKE/crash-$target" ] || exit 0
cp "$FAKE/crash-$target" "${prefix}crash-0123abcd"; exit 77
"""


def is_running(pid):
    """Whether a process that was told to end goes on. One that nobody has asked for its exit code does not run."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return False
        except (FileNotFoundError, ProcessLookupError):
            return False
        time.sleep(0.01)
    return True


class Fake(unittest.TestCase):
    """A source tree, programs and a state folder of their own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        self.root, self.state, self.fake = (self.folder / name for name in ("tree", "state", "fake"))
        for path in (self.root / "corpus/seeds/index_json", self.root / "corpus/regressions", self.fake):
            path.mkdir(parents=True)
        (self.root / "corpus/seeds/index_json/empty").write_text("{}\n")
        self.programs = Programs(self.root, self.write("shardcheck", SHARDCHECK), self.folder / "sanitized",
                                 self.folder / "fast")
        for build in ("sanitized", "fast"):
            self.write(f"{build}/fuzz_replay", REPLAY)
            for target in ("canary", "index_json", "plan_differential"):
                self.write(f"{build}/fuzz_{target}", FUZZER)
        self.tell("crash-canary", "bad canary")
        os.environ["FAKE"] = str(self.fake)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def tell(self, name, text):
        (self.fake / name).write_text(text)

    def night(self, *words):
        """(exit code, what it printed, its summary)."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = nightly.main([f"--state={self.state}", "--no-build", "--time=30s", "--jobs=1", *words], self.programs)
        return code, out.getvalue(), state.read_json(self.state / "summary.json", None)

    def calls(self):
        return (self.fake / "calls").read_text().splitlines()


class WholeNight(Fake):
    def test_a_good_night_exits_zero_and_says_that_the_canaries_were_caught(self):
        code, text, told = self.night("--seed=7")
        self.assertEqual(code, 0, text)
        self.assertTrue(text.startswith("seed 7\n"), text)
        self.assertIn("canary   law caught, fuzz target caught", text)
        self.assertIn("PASSED  0 findings", text)
        self.assertEqual(set(told["done"]), {"corpus", "earlier", "canary", "law:ranks_agree",
                                             "law:split_inverts_gather", "fault:swap_ranks", "fuzz:index_json",
                                             "fuzz:plan_differential"})
        self.assertTrue((self.state / "summary.txt").read_text() in text)
        page = (self.state / "summary.html").read_text()
        self.assertIn("</html>", page)
        self.assertEqual(told["done"]["fuzz:index_json"]["executions"], 8192)

    def test_a_canary_that_is_not_caught_fails_the_night(self):
        for name, part in (("canary-law", "law missed"), ("crash-canary", "fuzz target missed")):
            with self.subTest(name):
                old = (self.fake / name).read_text() if (self.fake / name).exists() else None
                (self.fake / name).unlink(missing_ok=True)
                if name == "canary-law":
                    self.tell(name, "0")
                code, text, _ = self.night("--only=canary", "--fresh")
                self.assertEqual(code, 1, text)
                self.assertIn(part, text)
                (self.fake / name).unlink(missing_ok=True)
                if old is not None:
                    self.tell(name, old)

    def test_a_crash_on_a_case_is_promoted_and_fails_until_it_is_mended(self):
        self.tell("crash-plan_differential", "ranks_agree heads=6 # bad\n")
        self.tell("promotes", "")
        code, text, told = self.night("--only=canary,fuzz:*")
        self.assertEqual(code, 1, text)
        self.assertEqual([one["file"] for one in told["findings"]], ["regressions/ranks_agree_heads_2.case"])
        self.assertTrue((self.state / "regressions/ranks_agree_heads_2.case").exists())
        self.assertIn("canary   law caught, fuzz target caught", text)
        promoted = next(call for call in self.calls() if call.startswith("corpus promote"))
        self.assertIn("--law=ranks_agree", promoted)
        (self.fake / "crash-plan_differential").unlink()
        code, text, _ = self.night("--only=earlier")
        self.assertEqual(code, 1, text)
        self.tell("replay", "0")
        code, text, _ = self.night("--only=earlier")
        self.assertEqual(code, 0, text)
        self.assertIn("is mended", text)

    def test_a_crash_that_no_law_sees_is_kept_as_the_smallest_input(self):
        self.tell("crash-index_json", "bad and long")
        code, text, told = self.night("--only=fuzz:index_json", "--seed=5")
        self.assertEqual(code, 1, text)
        [found] = told["findings"]
        self.assertEqual((found["kept"], found["replays"]), ("input", 3))
        kept = (self.state / found["file"]).read_text()
        self.assertIn("# found_by: fuzz target index_json, seed 5\n", kept)
        self.assertIn("# why: value 3 is wrong\n" if "value 3" in kept else "# why: value 12 is wrong\n", kept)
        self.assertTrue(kept.endswith("62 61 64\n"), kept)
        code, text, told = self.night("--only=fuzz:index_json", "--commit-regressions")
        self.assertTrue((self.root / "corpus" / found["file"][len("regressions/"):]).exists())

    def test_a_crash_that_does_not_repeat_is_told_and_is_no_finding(self):
        self.tell("crash-index_json", "good when it is alone")
        code, text, _ = self.night("--only=fuzz:index_json")
        self.assertEqual(code, 0, text)
        self.assertIn("did not show again", text)

    def test_a_fuzzer_that_executes_nothing_fails_the_night(self):
        self.write("sanitized/fuzz_index_json", "#!/bin/sh\nexit 1\n")
        self.write("fast/fuzz_index_json", "#!/bin/sh\nexit 1\n")
        code, text, _ = self.night("--only=fuzz:index_json")
        self.assertEqual(code, 1, text)
        self.assertIn("executed nothing", text)

    def test_whatever_else_fails_is_a_finding(self):
        for name, value, only in (("corpus", "1", "corpus"), ("seeds", "1", "corpus"), ("law-ranks_agree", "1", "law:*"),
                                  ("law-ranks_agree", "134", "law:*"), ("kill-swap_ranks", "1", "fault:*")):
            with self.subTest(name):
                self.tell(name, value)
                code, text, _ = self.night(f"--only={only}")
                self.assertEqual(code, 1, text)
                (self.fake / name).unlink()

    def test_an_undecided_law_is_told_and_is_no_finding(self):
        self.tell("law-ranks_agree", "3")
        self.tell("health-ranks_agree", "9 of 10 cases were not decided")
        code, text, _ = self.night("--only=law:*")
        self.assertEqual(code, 0, text)
        self.assertIn("law ranks_agree is undecided", text)

    def test_a_law_that_time_cut_short_counts_what_it_judged(self):
        self.tell("law-ranks_agree", "3")
        self.tell("health-ranks_agree", "12 cases were decided: at least 500 are needed")
        code, text, told = self.night("--only=law:*")
        self.assertEqual((code, told["notes"]), (0, []), text)
        self.assertEqual(told["done"]["law:ranks_agree"]["cases"], 12)

    def test_the_failing_case_of_a_law_is_promoted(self):
        self.tell("law-ranks_agree", "1")
        self.tell("failing-ranks_agree", "")
        self.tell("promotes", "")
        code, _, told = self.night("--only=law:*")
        self.assertEqual(code, 1)
        self.assertEqual(told["findings"][0]["file"], "regressions/ranks_agree_heads_2.case")

    def test_an_interrupted_night_goes_on_where_it_was(self):
        self.write("fast/fuzz_index_json", "#!/bin/sh\necho $$ >\"$FAKE/started\"\nsleep 60\n")
        command = [sys.executable, "-c", "import sys; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv[1]);"
                   "import nightly_test as t; from pathlib import Path; r = Path(sys.argv[2]);"
                   "p = t.Programs(r / 'tree', r / 'shardcheck', r / 'sanitized', r / 'fast');"
                   "sys.exit(t.nightly.main(['--state=' + str(r / 'state'), '--no-build', '--time=60s', '--jobs=1',"
                   "'--seed=3'], p))", str(CI), str(self.folder)]
        night = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while not (self.fake / "started").exists() and time.monotonic() < end:
            time.sleep(0.01)
        night.send_signal(signal.SIGTERM)
        self.assertEqual(night.wait(30), 128 + signal.SIGTERM)
        self.assertFalse(is_running((self.fake / "started").read_text().strip()), "a fuzzer outlives its night")
        self.write("fast/fuzz_index_json", FUZZER)
        (self.fake / "calls").unlink()
        code, text, told = self.night()
        self.assertEqual((code, told["seed"], told["resumed"]), (0, 3, 1), text)
        self.assertFalse(any(call.startswith("corpus verify") for call in self.calls()), "it began anew")
        self.assertIn("fuzz:index_json", told["done"])

    def test_environment_and_usage_have_their_exit_codes(self):
        self.write("shardcheck", "#!/bin/sh\nexit 4\n")
        self.assertEqual(self.night()[0], 4)
        for words in ("--time=soon", "--time=0", "--quota=x", "--seed=-1", "--jobs=0", "--unknown"):
            with self.subTest(words), self.assertRaises(SystemExit) as stop, contextlib.redirect_stderr(io.StringIO()):
                nightly.main([words], self.programs)
            self.assertEqual(stop.exception.code, 2)
        held = state.State(self.state, 2**30)
        self.assertEqual(self.night()[0], 4)
        held.close()

    def test_the_next_night_tells_what_changed_and_begins_with_what_waited(self):
        self.night("--only=fuzz:index_json")
        time.sleep(1.1)  # a night is named by its second
        _, text, _ = self.night("--only=fuzz:*")
        self.assertIn("compared with night", text)
        fuzzed = [call for call in self.calls() if "-fork=" in call]
        self.assertIn("fuzz_plan_differential", fuzzed[2])


class Parts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_times_and_sizes(self):
        self.assertEqual([budget.parse_time(text) for text in ("90", "90s", "3m", "1.5h")], [90, 90, 180, 5400])
        self.assertEqual([budget.parse_size(text) for text in ("500MiB", "2GiB", "10")], [500 * 2**20, 2**31, 10])
        for text in ("", "-3", "0s", "3d", "m"):
            self.assertRaises(ValueError, budget.parse_time, text)
            self.assertRaises(ValueError, budget.parse_size, text)

    def test_any_time_is_dealt_out_without_uselessly_small_slices(self):
        self.assertEqual(budget.slices(10, 100.0, 8.0), (10, 10.0))
        self.assertEqual(budget.slices(10, 20.0, 8.0), (2, 10.0))
        self.assertEqual(budget.slices(10, 3.0, 8.0), (1, 3.0))
        self.assertEqual(budget.slices(10, 0.0, 8.0)[0], 0)

    def test_what_is_due_may_take_most_of_a_night_and_other_work_a_quarter(self):
        day = 86400.0
        self.assertTrue(budget.is_due(last=0.0, created=0.0, now=6.5 * day))
        self.assertFalse(budget.is_due(last=5 * day, created=0.0, now=6.5 * day))
        self.assertTrue(budget.room_for(1800, 2700, 2700, due=True))
        self.assertFalse(budget.room_for(1800, 2700, 2700, due=False))
        self.assertFalse(budget.room_for(1800, 1000, 2700, due=True))

    def test_a_command_ends_with_its_time_and_so_does_what_it_started(self):
        log = self.folder / "log"
        done = process.run(["/bin/sh", "-c", "sleep 60 & echo $!; wait"], log, seconds=0.3)
        self.assertTrue(done.timed_out)
        self.assertLess(done.seconds, 10)
        self.assertFalse(is_running(done.text().strip()))

    def test_the_disk_quota_takes_what_is_worth_least(self):
        kept = state.State(self.folder, quota=5000)
        for name, size in (("work/a/log", 9000), ("logs/1/x", 3000), ("logs/2/x", 3000), ("corpus/t/big", 3000),
                           ("corpus/t/small", 100), ("regressions/r.case", 500)):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * size)
        kept.keep_within_quota()
        left = {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}
        self.assertEqual(left - {"lock"}, {"logs/2/x", "corpus/t/small", "regressions/r.case"})
        kept.close()

    def test_a_check_that_was_cut_off_is_not_said_to_have_run(self):
        kept = state.State(self.folder, quota=10**9)
        kept.record("test", 100.0, "passed", complete=False)
        self.assertEqual((kept.last()["test"], kept.estimate("test", 1.0)), (0.0, 150.0))
        kept.record("test", 90.0, "passed")
        self.assertEqual(kept.estimate("test", 1.0), 90.0)
        self.assertGreater(kept.last()["test"], 0.0)
        kept.close()

    def test_messages_of_crashes(self):
        self.assertEqual(findings.message_of("x\nfinding: t: ranks differ\nSUMMARY: AddressSanitizer: x\n"), "ranks differ")
        self.assertEqual(findings.message_of("SUMMARY: AddressSanitizer: heap-buffer-overflow a.cc:3\n"),
                         "AddressSanitizer: heap-buffer-overflow a.cc:3")
        same = [findings.signature_of("t", text) for text in ("row 3 of 0x7f in 'a'", "row 14 of 0x11 in 'b c'")]
        self.assertEqual(same[0], same[1])
        self.assertNotEqual(same[0], findings.signature_of("t", "column 3"))

    def test_the_laws_of_an_artifact_are_its_own_and_those_of_its_target(self):
        target = Target("plan_differential", "case_line", "")
        known = {"ranks_agree", "there_and_back"}
        self.assertEqual(findings.case_laws(target, "# c\nranks_agree heads=2\n", known), ["ranks_agree", "there_and_back"])
        self.assertEqual(findings.case_laws(target, "\0garbage", known), ["there_and_back"])

    def test_the_last_status_line_counts(self):
        text = "#2 INITED cov: 3 ft: 4 corp: 1/1b exec/s: 0 rss: 30Mb\n#512: cov: 9 ft: 12 corp: 3 exec/s 256 oom\n"
        self.assertEqual(fuzzing.status_of(text), (512, 9))
        self.assertEqual(fuzzing.status_of("nothing"), (0, 0))

    def test_coverage_counts_lines_by_folder_and_has_floors(self):
        def file(name, covered):
            return {"filename": name, "summary": {"lines": {"count": 100, "covered": covered}}}
        told = {"data": [{"files": [file("/r/lib/src/case/a.cc", 100), file("/r/lib/src/case/b.cc", 81),
                                    file("/usr/include/x.h", 0), file("/r/lib/src/layout/c.cc", 89)]}]}
        folders = coverage.lines_by_folder(told, Path("/r"))
        self.assertEqual(folders, {"lib/src/case": (181, 200), "lib/src/layout": (89, 100)})
        below = " ".join(coverage.below_floor(folders))
        self.assertNotIn("lib/src/case", below)
        for folder in ("lib/src/layout: 89.0 %", "lib/src/reshard: 0.0 %", "lib/src/checkpoint"):
            self.assertIn(folder, below)

    def test_a_week_without_a_run_is_said(self):
        told = {"waiting": [{"task": "law:a", "days": 8.0, "at": 0.0}, {"task": "law:b", "days": 6.0, "at": 0.0}]}
        self.assertEqual([row["task"] for row in summary.overdue(told)], ["law:a"])

    def test_one_bug_is_one_finding(self):
        one = {"file": "", "source": "law a", "message": "m", "kept": "", "replays": 0}
        self.assertEqual(len(schedule.unique([one, dict(one), {**one, "file": "f"}, {**one, "file": "f", "message": "n"}])), 2)


if __name__ == "__main__":
    unittest.main()
