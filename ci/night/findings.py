"""From an artifact to a regression: does it repeat, is it known, the smallest case that shows it, the file."""
import hashlib
import re
from dataclasses import asdict, dataclass

from night import process
from night.fuzzing import SANITIZED_TIMEOUT, sanitizer_options

REPLAYS = 3
REPLAY_SECONDS = 60.0
MOST_PER_TARGET = 5  # different findings of one target in one night; the rest is counted
# Laws that ask of a case what a target asks of it, after the case's own.
LAWS = {
    "case_line": ["printed_case_parses_back"],
    "plan_differential": ["plan_equals_gather_then_split", "reshard_equals_gather_then_split", "there_and_back",
                          "gather_inverts_split"],
    "forward_differential": ["sharded_equals_reference", "mesh_equals_reference"],
    "reshard_file": ["there_and_back", "reshard_equals_gather_then_split"],
    "sync_sequence": ["every_sync_delivers_its_weights", "digest_is_layout_independent"],
}


@dataclass
class Finding:
    source: str  # "fuzz target safetensors", "law gather_inverts_split"
    message: str
    file: str = ""  # regression or artifact, relative to the state folder
    kept: str = ""  # "case", "input", "artifact"
    replays: int = 0  # how often it showed again, of REPLAYS

    def as_json(self):
        return asdict(self)


def message_of(log):
    """What a fuzzer says of a crash: the finding, else the sanitizer's summary, else its last line."""
    for pattern in (r"^finding: \S+ (.*)$", r"^SUMMARY: (.*)$", r"^==\d+== ?ERROR: (.*)$", r"^(terminate called .*)$"):
        if found := re.search(pattern, log, re.M):
            return found[1].strip()
    lines = [line for line in log.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it ended without a word"


def signature_of(target, message):
    """Two findings are one where their messages differ in numbers and quoted text alone."""
    unquoted = re.sub(r"'[^']*'|\"[^\"]*\"", "''", message)
    return target + " " + re.sub(r"0x[0-9a-f]+|\d+", "#", unquoted)[:120]


def case_laws(target, text, known_laws):
    """The laws to judge an artifact by: its own first, when there is one of that name."""
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    own = [lines[0][0]] if lines and lines[0][0] in known_laws else []
    return own + [law for law in LAWS.get(target.name, []) if law in known_laws and law not in own]


def as_hex(data, comments):
    rows = [data[at:at + 16].hex(" ") for at in range(0, len(data), 16)]
    return "".join(f"# {line}\n" for line in comments) + "\n".join(rows) + "\n"


class Keeper:
    """Turns artifacts of one target into findings with files in `folder`/regressions."""

    def __init__(self, programs, folder, known_laws, commit, seed):
        self.programs, self.folder, self.known_laws = programs, folder, known_laws
        self.commit, self.seed = commit, seed

    def keep_all(self, target, artifacts, seconds):
        """Findings, one for each signature, and what is to be said about the rest."""
        findings, notes, seen = [], [], set()
        for artifact in artifacts:
            message, replays = self.replay(target, artifact)
            signature = signature_of(target.name, message)
            if signature in seen:
                continue
            seen.add(signature)
            if replays == 0:
                notes.append(f"{artifact.name} of {target.name} did not show again: {message}")
            elif len(findings) >= MOST_PER_TARGET:
                notes.append(f"{target.name}: another finding was left alone: {message}")
            else:
                findings.append(self.keep(target, artifact, message, replays, seconds))
        return findings, notes

    def replay(self, target, artifact):
        """(message, how often of three runs the input failed)."""
        failed, message = 0, ""
        for number in range(REPLAYS):
            done = self.fuzzer(target, artifact, [f"-timeout={SANITIZED_TIMEOUT}"], f"replay-{number}", REPLAY_SECONDS)
            if done.code != 0 or done.timed_out:
                failed += 1
                message = message_of(done.text())
            elif not message:
                message = "passes when it is run alone"
        return message, failed

    def fuzzer(self, target, artifact, options, what, seconds):
        program = self.programs.sanitized / f"fuzz_{target.name}"
        log = self.folder / "work" / target.name / f"{artifact.name}.{what}.log"
        return process.run([program, *options, artifact], log, seconds, environment=sanitizer_options())

    def keep(self, target, artifact, message, replays, seconds):
        finding = Finding(f"fuzz target {target.name}", message, replays=replays)
        if target.takes_cases and self.promote(target.name, artifact, finding, seconds, target):
            return finding
        return self.keep_input(target, artifact, finding, seconds)

    def promote(self, name, artifact, finding, seconds, target=None):
        """A case file by `shardcheck corpus promote`, when a law sees what the target saw."""
        laws = case_laws(target, artifact.read_text(encoding="utf-8", errors="replace"), self.known_laws) if target else []
        if target and not laws:
            return False
        log = self.folder / "work" / name / f"{artifact.name}.promote.log"
        done = process.run(
            [self.programs.shardcheck, "corpus", "promote", artifact, f"--corpus={self.programs.root / 'corpus'}",
             f"--to={self.folder / 'regressions'}", f"--found-by={finding.source}, seed {self.seed}",
             f"--shrink={max(1, int(seconds))}s", *([f"--law={','.join(laws)}"] if laws else [])],
            log, seconds + REPLAY_SECONDS, folder=self.folder)
        written = re.search(r"^written to (.*)$", done.text(), re.M)
        known = re.search(r"shardcheck: (.*): the corpus has this case already", done.text())
        path = written[1] if written else known[1] if known else None
        if path is None:
            return False
        finding.file, finding.kept = self.relative(path), "case"
        if observed := re.search(r"^minimal after .*\n.*\n  (.*)$", done.text(), re.M):
            finding.message = observed[1]
        return True

    def relative(self, path):
        folder = str(self.folder) + "/"
        return path[len(folder):] if path.startswith(folder) else path

    def keep_input(self, target, artifact, finding, seconds):
        """The smallest input libFuzzer finds, as text that fuzz_replay reads."""
        smallest = artifact.with_name(artifact.name + ".min")
        self.fuzzer(target, artifact, ["-minimize_crash=1", f"-max_total_time={max(1, int(seconds))}",
                                       f"-exact_artifact_path={smallest}"], "minimize", seconds + REPLAY_SECONDS)
        chosen = artifact
        if smallest.exists() and smallest.stat().st_size < artifact.stat().st_size:
            message, replays = self.replay(target, smallest)
            if replays == REPLAYS and signature_of(target.name, message) == signature_of(target.name, finding.message):
                chosen, finding.replays = smallest, replays
        finding.file, finding.kept = self.relative(str(self.write_input(target, chosen, finding))), "input"
        return finding

    def write_input(self, target, artifact, finding):
        """Cases as text with a header, everything else as hexadecimal with comments."""
        data = artifact.read_bytes()
        folder = self.folder / "regressions/seeds" / target.name
        folder.mkdir(parents=True, exist_ok=True)
        name = "found_" + hashlib.sha256(data).hexdigest()[:12]
        header = [f"found_by: {finding.source}, seed {self.seed}", f"commit: {self.commit}", f"why: {finding.message}"]
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = None
        if target.takes_cases and text is not None and "\0" not in text:
            path = folder / (name + ".seed")
            path.write_text("".join(f"# {line}\n" for line in header) + text.rstrip("\n") + "\n", encoding="utf-8")
        else:
            path = folder / (name + ".hex")
            path.write_text(as_hex(data, header), encoding="utf-8")
        return path
