"""The summary of a night as text, with what changed since the night before."""
import time

from night.budget import spelled

WEEK_DAYS = 7.0


def of_kind(summary, kind):
    """{"safetensors": {...}} of the tasks "fuzz:safetensors"."""
    return {name.split(":", 1)[1]: value for name, value in summary["done"].items() if name.startswith(kind + ":")}


def number(value):
    return f"{int(value):,}".replace(",", " ")


def change(now, before):
    """"", "(+12)", "(-3)"."""
    if before is None or now == before:
        return ""
    return f"({now - before:+,})".replace(",", " ") if isinstance(now, int) else f"({now - before:+.2f})"


def table(rows, right):
    """Aligned columns; `right` holds the indices of those aligned to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) if column in right else cell.ljust(width)
                 for column, (cell, width) in enumerate(zip(row, widths))]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines


def fuzz_rows(summary, previous):
    before = of_kind(previous, "fuzz") if previous else {}
    rows = [["target", "executions", "a second", "edges", "", "inputs", "", "artifacts"]]
    for name, now in sorted(of_kind(summary, "fuzz").items()):
        old = before.get(name, {})
        rate = now["executions"] / now["seconds"] if now["seconds"] else 0
        rows.append([name, number(now["executions"]), number(rate), number(now["covered"]),
                     change(now["covered"], old.get("covered")), number(now["inputs"]),
                     change(now["inputs"], old.get("inputs")), number(now["artifacts"])])
    return rows


def coverage_rows(summary, previous):
    now, old = summary["done"].get("coverage", {}), (previous or {}).get("done", {}).get("coverage", {})
    rows = [["folder", "% of lines by the corpus", "", "with fuzzed inputs"]]
    for folder, share in sorted(now.get("corpus", {}).items()):
        rows.append([folder, f"{share:.2f}", change(share, old.get("corpus", {}).get(folder)),
                     f"{now['corpus_and_fuzzers'].get(folder, share):.2f}"])
    return rows


def sweep_line(summary, kind, what):
    """"laws  23 of 51 judged, 12 300 cases"."""
    done, known = of_kind(summary, kind), [row for row in summary["waiting"] if row["task"].startswith(kind + ":")]
    cases = sum(one.get("cases", 0) for one in done.values())
    failed = sum(one["verdict"] == "failed" for one in done.values())
    return f"{what:<9}{len(done)} of {len(known)}" + (f", {number(cases)} cases" if cases else "") + \
        (f", {failed} failed" if failed else "")


def canary_line(summary):
    done = summary["done"].get("canary")
    if done is None:
        return "canary   was not asked for"
    return f"canary   law {done['law']}, fuzz target {done['target']}"


def overdue(summary):
    return [row for row in summary["waiting"] if row["days"] > WEEK_DAYS]


def when(seconds):
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else "never"


def verdict_line(summary):
    count = len(summary["findings"])
    word = "PASSED" if summary["exit_code"] == 0 else "FAILED"
    return (f"{word}  {count} finding{'' if count == 1 else 's'}, {len(summary['done'])} tasks in "
            f"{spelled(summary['used_seconds'])} of {spelled(summary['budget_seconds'])}")


def as_text(summary, previous):
    lines = [f"night {summary['night']}, commit {summary['commit']}, seed {summary['seed']}"
             + (f", resumed {summary['resumed']} times" if summary["resumed"] else "")]
    if previous:
        lines.append(f"compared with night {previous['night']}, commit {previous['commit']}")
    lines += ["", canary_line(summary)]
    if corpus := summary["done"].get("corpus"):
        lines.append(f"corpus   {corpus.get('cases', 0)} cases, {corpus['verdict']}")
    lines += [sweep_line(summary, "law", "laws"), sweep_line(summary, "fault", "faults")]
    for name in ("coverage", "test", "tidy"):
        if done := summary["done"].get(name):
            lines.append(f"{name:<9}{done['verdict']}, {spelled(done['seconds'])}")
    if len(rows := fuzz_rows(summary, previous)) > 1:
        lines += ["", "Fuzzing", *table(rows, {1, 2, 3, 5, 7})]
    if len(rows := coverage_rows(summary, previous)) > 1:
        lines += ["", "Coverage", *table(rows, {1, 3})]
    if late := overdue(summary):
        lines += ["", "Has not run for a week", *table([[row["task"], when(row["at"])] for row in late[:40]], set())]
    for title, sentences in (("Notes", summary["notes"]), ("Findings", [describe(one) for one in summary["findings"]])):
        if sentences:
            lines += ["", title, *("  " + line for sentence in sentences for line in sentence.splitlines())]
    return "\n".join([*lines, "", verdict_line(summary)]) + "\n"


def describe(finding):
    text = f"{finding['source']}: {finding['message']}"
    if finding["file"]:
        text += f"\n    kept in {finding['file']}"
    if finding["replays"]:
        text += f"\n    shows in {finding['replays']} of 3 runs"
    return text
