#!/usr/bin/env python3
"""Counts the test cases of a Bazel run and prints 'N passed, N failed'.

usage: summarize.py BAZEL_LOG BAZEL_EXIT_CODE   (in the workspace's root)

A case is one test of a GoogleTest binary, read from the target's test.xml; a
target without one counts as one case. Cases that could not run here are listed, and count for
nothing. Exits 1 unless all passed and some ran.
"""
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

RESULT = re.compile(r"^(//\S+)\s+(?:\(cached\) )?(PASSED|FLAKY|FAILED|TIMEOUT|NO STATUS)\b")


def count_cases(label):
    """(passed, failed, skipped) of a target, or None if it left no readable report."""
    path = Path("bazel-testlogs") / label[2:].replace(":", "/") / "test.xml"
    try:
        suites = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    failed = passed = skipped = 0
    for case in suites.iter("testcase"):
        if case.get("status") == "notrun" or case.get("result") == "suppressed":
            continue
        if case.get("result") == "skipped":
            skipped += 1
        elif case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        else:
            passed += 1
    return passed, failed, skipped


def main():
    log, exit_code = Path(sys.argv[1]), int(sys.argv[2])
    results = {}
    for line in log.read_text(errors="replace").splitlines():
        match = RESULT.match(line)
        if match:
            results[match.group(1)] = match.group(2)
    passed = failed = 0
    for label, result in sorted(results.items()):
        cases = count_cases(label) if result != "NO STATUS" else None
        if cases and cases[2]:
            print(f"skipped: {cases[2]} of {label}, which says why in its log")
        if result in ("PASSED", "FLAKY"):
            passed += cases[0] if cases and any(cases) else 1
        else:
            print(f"failed: {label} ({result})")
            passed += cases[0] if cases else 0
            failed += max(1, cases[1]) if cases else 1
    if exit_code != 0 and failed == 0:
        print("failed: the build (see above)")
        failed = 1
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
