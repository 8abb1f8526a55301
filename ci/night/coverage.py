"""Line coverage of the library by what the corpus and the fuzzers replay, measured by clang's own counters."""
import json

from night import process
from night.checks import Check
from night.programs import BuildFailed, build

PRESET = "coverage"
LLVM = {"profdata": "llvm-profdata-14", "cov": "llvm-cov-14"}
# Folders whose coverage by the corpus alone has a floor, in percent of lines.
FLOORS = {"lib/src/layout": 90.0, "lib/src/reshard": 90.0, "lib/src/case": 90.0, "lib/src/checkpoint": 90.0}


def lines_by_folder(exported, root):
    """{"lib/src/case": (covered, lines), ...} of `llvm-cov export -summary-only`, for the project's own sources."""
    folders = {}
    for file in exported["data"][0]["files"]:
        name = file["filename"]
        if not name.startswith(str(root) + "/"):
            continue
        folder = name[len(str(root)) + 1:].rsplit("/", 1)[0]
        if not folder.startswith(("lib/src", "tolerance/src", "mutators/", "properties/", "fuzz/")):
            continue
        counted = file["summary"]["lines"]
        covered, lines = folders.get(folder, (0, 0))
        folders[folder] = (covered + counted["covered"], lines + counted["count"])
    return folders


def percent(covered, lines):
    return round(100.0 * covered / lines, 2) if lines else 0.0


def below_floor(folders):
    """Sentences about folders with less than their floor, or absent."""
    shares = {folder: percent(*folders.get(folder, (0, 0))) for folder in FLOORS}
    return [f"{folder}: {share} % of lines by the corpus alone, at least {FLOORS[folder]:g} % are needed"
            for folder, share in sorted(shares.items()) if share < FLOORS[folder]]


def replayed(tools, programs, profiles, what, words, seconds):
    return process.run([programs[0], *words], tools.logs / f"coverage-{what}.log", seconds,
                       environment={"LLVM_PROFILE_FILE": str(profiles / f"{what}-%p.profraw")}, folder=tools.logs)


def measured(tools, programs, profiles):
    """Folders of the coverage of all profiles so far."""
    merged = profiles / "all.profdata"
    steps = [[LLVM["profdata"], "merge", "-sparse", *sorted(profiles.glob("*.profraw")), "-o", merged],
             [LLVM["cov"], "export", "-summary-only", f"-instr-profile={merged}", programs[0],
              *(f"-object={program}" for program in programs[1:])]]
    for number, command in enumerate(steps):
        done = process.run(command, tools.logs / f"coverage-llvm-{number}.log", 600)
        if done.code != 0:
            raise BuildFailed(f"{command[0]}: {done.tail(5)}")
    text = done.text()
    return lines_by_folder(json.loads(text[text.index("{"):]), tools.programs.root)


def coverage(tools, seconds):
    """Builds the preset, replays the corpus, then the corpora of the fuzzers."""
    root = tools.programs.root
    check = Check()
    try:
        build(root, PRESET, ["shardcheck", "fuzz_replay"], tools.logs, tools.jobs)
        programs = [root / "build/coverage/lib/cli/shardcheck", root / "build/coverage/fuzz/fuzz_replay"]
        profiles = tools.logs / "profiles"
        profiles.mkdir(exist_ok=True)
        done = [replayed(tools, programs, profiles, "corpus", ["replay", root / "corpus"], seconds),
                replayed(tools, programs[1:], profiles, "seeds", [root / "corpus/seeds"], seconds)]
        by_corpus = measured(tools, programs, profiles)
        for folder in sorted((tools.folder / "corpus").iterdir()):
            done.append(replayed(tools, programs[1:], profiles, f"fuzzed-{folder.name}",
                                 [f"--target={folder.name}", folder], seconds))
        by_all = measured(tools, programs, profiles)
    except (BuildFailed, OSError, ValueError) as error:
        check.fail("coverage", str(error))
        return check
    check.seconds = sum(one.seconds for one in done)
    check.facts["corpus"] = {folder: percent(*counts) for folder, counts in by_corpus.items()}
    check.facts["corpus_and_fuzzers"] = {folder: percent(*counts) for folder, counts in by_all.items()}
    for sentence in below_floor(by_corpus):
        check.fail("coverage", sentence)
    for profile in profiles.iterdir():
        profile.unlink()
    return check
