#!/usr/bin/env python3
"""summary.py NAME JUNIT.xml ...: says of each test that did not run why, names those that failed, and ends with the counts."""
import os
import re
import sys
import xml.etree.ElementTree as xml


def skip_reasons(output):
    """The name of each skipped test in GoogleTest's output, and the words it printed: they stand between 'Skipped' and '[  SKIPPED ] NAME'."""
    return [(name, " ".join(words.split())) for words, name in re.findall(r"^\S+: Skipped\n(.*?)\n\[  SKIPPED \] (\S+) \(", output, re.S | re.M)]


def main(arguments):
    passed, failed, skipped = 0, [], []
    for preset, file in zip(arguments[::2], arguments[1::2]):
        if not os.path.exists(file):
            failed.append(f"{preset}: ctest wrote no results")
            continue
        for case in xml.parse(file).getroot().iter("testcase"):
            name, status, output = case.get("name"), case.get("status"), case.findtext("system-out") or ""
            # A test of ctest's may be a program of many GoogleTest tests: its last lines count those.
            counts = re.findall(r"^\[  PASSED  \] (\d+) tests?\.$", output, re.M)
            names = dict.fromkeys(re.findall(r"^\[  FAILED  \] (\D[^\s,]*)", output, re.M))
            reasons = skip_reasons(output)
            if status == "run" and counts:
                passed += int(counts[-1])
                skipped += [f"{preset}: {test}: {why}" for test, why in reasons]
            elif status == "run":
                passed += 1
            elif status in ("notrun", "disabled") and case.find("skipped") is not None:
                why = re.search(r"^SKIP: (.*)$", output, re.M)
                skipped.append(f"{preset}: {name}: {reasons[0][1] if reasons else why.group(1) if why else 'no reason given'}")
            elif counts and names:
                passed += int(counts[-1])
                failed += [f"{preset}: {name}: {test}" if test != name else f"{preset}: {name}" for test in names]
            else:
                failed.append(f"{preset}: {name}")
    for line in skipped:
        print(f"did not run  {line}")
    for line in failed:
        print(f"FAILED       {line}")
    print(f"{passed} passed, {len(failed)} failed" + (f", {len(skipped)} did not run (why: above)" if skipped else ""))
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
