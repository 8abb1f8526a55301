"""The summary of a night as one HTML page that needs nothing else."""
from html import escape

from night.summary import (canary_line, coverage_rows, describe, fuzz_rows, overdue, sweep_line, verdict_line, when)

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.passed { color: #176b2c; } .failed { color: #a4161a; }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem .15rem 0; text-align: right; font-weight: normal; }
th { color: #777; border-bottom: 1px solid #ddd; } td:first-child, th:first-child { text-align: left; }
pre { background: #f6f6f4; padding: .6rem; white-space: pre-wrap; } .faint { color: #777; }
"""


def html_table(rows):
    head, *body = [[escape(cell) for cell in row] for row in rows]
    text = "<table><tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr>\n"
    for row in body:
        text += "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n"
    return text + "</table>\n"


def trend(nights, value, title):
    """A line of one number over the nights that have it; nothing for less than two."""
    points = [value(night) for night in nights]
    points = [point for point in points if point is not None]
    if len(points) < 2:
        return ""
    low, high = min(points), max(points)
    step, height = 400.0 / (len(points) - 1), 40.0
    path = " ".join(f"{index * step:.1f},{height - (point - low) / ((high - low) or 1) * height + 5:.1f}"
                    for index, point in enumerate(points))
    return (f'<p><span class="faint">{escape(title)}, {low:g} to {high:g}</span><br><svg width="400" height="50">'
            f'<polyline fill="none" stroke="#4466aa" stroke-width="2" points="{path}"/></svg></p>\n')


def edges_of(night):
    fuzzed = [value["covered"] for name, value in night["done"].items() if name.startswith("fuzz:")]
    return sum(fuzzed) if fuzzed else None


def as_page(summary, previous, nights):
    """`nights`: earlier summaries and this one, oldest first."""
    tone = "passed" if summary["exit_code"] == 0 else "failed"
    text = (f"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Night {escape(summary['night'])}"
            f"</title><style>{STYLE}</style></head><body>\n<h1>Night {escape(summary['night'])}</h1>\n"
            f"<p class=\"{tone}\">{escape(verdict_line(summary))}</p>\n"
            f"<p class=\"faint\">commit {escape(summary['commit'])}, seed {summary['seed']}</p>\n")
    if summary["findings"]:
        text += "<h2>Findings</h2>\n" + "".join(f"<pre>{escape(describe(one))}</pre>\n" for one in summary["findings"])
    lines = [canary_line(summary), sweep_line(summary, "law", "laws"), sweep_line(summary, "fault", "faults")]
    text += "<h2>What ran</h2>\n" + "".join(f"<p>{escape(line)}</p>\n" for line in lines)
    for title, rows in (("Fuzzing", fuzz_rows(summary, previous)), ("Coverage", coverage_rows(summary, previous))):
        if len(rows) > 1:
            text += f"<h2>{title}</h2>\n{html_table(rows)}"
    text += trend(nights, edges_of, "edges covered") + trend(nights, lambda night: len(night["findings"]), "findings")
    if late := overdue(summary):
        rows = [["task", "last run"], *([row["task"], when(row["at"])] for row in late)]
        text += f"<h2>Has not run for a week</h2>\n{html_table(rows)}"
    if summary["notes"]:
        text += "<h2>Notes</h2>\n" + "".join(f"<p>{escape(note)}</p>\n" for note in summary["notes"])
    rows = [["task", "last run"], *([row["task"], when(row["at"])] for row in summary["waiting"])]
    return text + f"<details><summary>When everything ran</summary>\n{html_table(rows)}</details>\n</body></html>\n"
