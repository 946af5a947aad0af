#!/usr/bin/env python3
"""summary.py NAME JUNIT.xml ...: says of each test that did not run why, names those that failed, and ends with the counts."""
import os
import re
import sys
import xml.etree.ElementTree as xml


def reason(case):
    """The words that a skipped test printed: GoogleTest writes them after 'Skipped', before '[  SKIPPED ]'."""
    output = case.findtext("system-out") or ""
    match = re.search(r"Skipped\n(.*?)\n\[  SKIPPED \]", output, re.S) or re.search(r"^SKIP: (.*)$", output, re.M)
    return " ".join(match.group(1).split()) if match else "no reason given"


def main(arguments):
    passed, failed, skipped = 0, [], []
    for name, file in zip(arguments[::2], arguments[1::2]):
        if not os.path.exists(file):
            failed.append(f"{name}: ctest wrote no results")
            continue
        for case in xml.parse(file).getroot().iter("testcase"):
            status, label = case.get("status"), f"{name}: {case.get('name')}"
            if status == "run":
                passed += 1
            elif status in ("notrun", "disabled") and case.find("skipped") is not None:
                skipped.append(f"{label}: {reason(case)}")
            else:
                failed.append(label)
    for line in skipped:
        print(f"did not run  {line}")
    for line in failed:
        print(f"FAILED       {line}")
    print(f"{passed} passed, {len(failed)} failed" + (f", {len(skipped)} did not run (why: above)" if skipped else ""))
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
