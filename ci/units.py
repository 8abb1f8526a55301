#!/usr/bin/python3
"""Joins source files into translation units, so that what they all include is read once. Usage: ci/units.py FILE...

Prints one unit a line, its files separated by semicolons. A unit stays inside a folder. A name that a file defines for itself,
at the left margin where our format puts what namespaces contain, appears in no other file of the unit, so that nothing
changes its meaning. A file that Highway includes once per instruction set stays alone.
"""
import re
import sys
from pathlib import Path

MOST_FILES = 8
NO_DEFINITION = re.compile(r"[\s}#/]|namespace\b|template\b|using namespace\b|static_assert\b|TEST|INSTANTIATE_")
KEYWORD = re.compile(r"(?:struct|class|enum(?: class)?|union|using)\s+(\w+)\s*(?:[={]|:(?!:)|final\b|$)")


def names(text):
    """What a file defines for itself: all in its anonymous namespace, and outside of it what is no function."""
    found, private = set(), False
    for line in text.split("\n"):
        if line.startswith("namespace {") or line.startswith("}  // namespace"):
            private = line.startswith("namespace {")
        if not line or NO_DEFINITION.match(line):
            continue
        if keyword := KEYWORD.match(line):
            found.add(keyword[1])
        elif private or re.match(r"static\b|constexpr\b|[^(]*=", line):
            if name := re.search(r"(?<![:\w])(\w+)\s*$", re.split(r"[(={\[;]", line, maxsplit=1)[0]):
                found.add(name[1])
    return found


def units(files):
    """Lists of files in the given order, at most MOST_FILES each."""
    joined, alone = [], []  # joined: members, what they define, every word they say
    for file in files:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
        if "hwy/foreach_target.h" in text:
            alone.append([file])
            continue
        mine, words = names(text), set(re.findall(r"\w+", re.sub(r"//.*", "", text)))
        for members, taken, said in joined:
            together = Path(members[0]).parent == Path(file).parent and len(members) < MOST_FILES
            if together and taken.isdisjoint(words) and said.isdisjoint(mine):
                members.append(file)
                taken |= mine
                said |= words
                break
        else:
            joined.append(([file], mine, words))
    return [members for members, _, _ in joined] + alone


if __name__ == "__main__":
    for unit in units(sys.argv[1:]):
        print(";".join(unit))
