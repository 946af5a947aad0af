#!/usr/bin/env python3
"""Checks the English of the documents, of the comments in the public headers, of messages, and of test names.

  prose.py width ROOT        Markdown has at most 100 columns, except tables, code, and lines with a link
  prose.py words ROOT        no retired word: the glossary (docs/glossary.md) has the words to use
  prose.py sentences ROOT    no sentence has more than 35 words
  prose.py report ROOT       words of each page; median, 90th percentile and maximum of the words per sentence

The public headers are tutti/core.h, tutti/tutti.h and the headers that they include. Messages are
the string literals of more than one word in tutti/, apps/ and python/. Of messages and test names only the words are
checked. Exceptions are in allowed.txt.
"""
import itertools
import pathlib
import re
import statistics
import sys

sys.dont_write_bytecode = True
from markdown_blocks import Allowed, documents, plain, text_of  # noqa: E402
from references import GOOGLE_TEST, files_of  # noqa: E402

COLUMNS, LONGEST = 100, 35
GENERATED = "docs/reference/command-line.md"  # from the help texts, which have tests of their own

# Pattern of a retired word: what to write. Words with an ordinary meaning are retired in the named phrases only.
RETIRED = {
    r"pulses?|beats": "heartbeat",
    r"touch(es|ed)? the (store|peer|agent)": "send a heartbeat",
    r"lookouts?": "monitor",
    r"neighbours?|neighbors?": "peer, peer status",
    r"near end": "ssh launcher",
    r"far end": "ssh node",
    r"signposts?": "redirect",
    r"meeting place": "store endpoint",
    r"meeting of (the )?ranks|the meeting": "barrier",
    r"ballots?": "vote",
    r"voices?": "voter",
    r"deposed": "demoted",
    r"succession": "failover",
    r"witness(es)?": "arbiter",
    r"doubted": "suspected",
    r"adrift": "partitioned",
    r"twins?": "duplicate",
    r"gatherings?|comers?|seats?|roster": "membership, join request, assignment, participants",
    r"keepers?": "supervisor",
    r"places of (the )?ranks": "affinity",
    r"lookers?": "check",
    r"takers?": "consumer",
    r"guests?": "replica",
    r"shel(f|ves)": "slot",
    r"surroundings|passage": "forward context, block config",
    r"(in|last|no|their|its) words?|without a word|a word": "message",
    r"told|tells?": "report, print, reject",
    r"tame[ds]?": "sanitize for the terminal",
    r"drafts?": "temporary directory",
    r"travels?|travell?ed": "transfer",
    r"the book": "membership table",
    r"nobody uninvited": "authentication",
    r"(?<!nodes )(?<!ranks )(?<!processes )(?<!hosts )\bwho (has|have|is|are|took|knows?|gets?|runs?|came|comes)": "a rank that, users of",
    r"hangs? on": "depends on",
    r"as it comes|as they come": "by default",
    r"where (it|they) (lie|lies)": "in place",
    r"left out|given away|deals? out|dealt out": "skipped, moved, reshards",
    r"(go|goes|going|went|gone) on\b": "continue, resume",
    r"anew": "again, restart",
    r"lives": "is running",
    r"nobody|everybody": "no rank, all ranks",
}
RETIRED = [(re.compile(rf"\b(?:{pattern})\b", re.I), use) for pattern, use in RETIRED.items()]

ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|approx|no|Fig)\.$", re.I)
SENTENCE_END = re.compile(r"(?<=[^.][.!?])[\"')]*\s+")


def paragraphs_of_markdown(root, file):
    """Line and text of each paragraph, list item, heading and table row. Headings and rows are fragments (False)."""
    paragraph, first = [], 0
    for number, line in enumerate([*text_of(root, file), ""], 1):
        text = line.strip()
        fragment = re.match(r"[#|]|!\[|(\+\+\+|---|===)", text)
        if paragraph and (not text or fragment or re.match(r"([-*+]|\d+\.|>) ", text)):
            yield first, " ".join(paragraph), True
            paragraph = []
        if fragment:
            if not re.fullmatch(r"[|:\s-]+", text):
                yield number, text.strip("#| "), False
        elif text:
            first = first if paragraph else number
            paragraph.append(re.sub(r"^([-*+]|\d+\.|>) +(\[[ x]\] )?", "", text))


def paragraphs_of_header(root, file):
    """As above, from the comments. An indented line of a comment is code."""
    paragraph, first, trailing = [], 0, False
    for number, line in enumerate([*(root / file).read_text(encoding="utf-8").splitlines(), ""], 1):
        comment = re.match(r"(.*?)(?<!:)//+( ?.*)$", line)
        own_line = comment and not comment[1].strip()
        text = comment[2] if comment else ""
        is_code = text.startswith("  ") and own_line
        if paragraph and (not comment or not text.strip() or is_code or trailing or not own_line or re.match(r" [-*] ", text)):
            yield first, " ".join(paragraph), True
            paragraph = []
        if comment and text.strip() and not is_code:
            first = first if paragraph else number
            trailing = not own_line
            paragraph.append(re.sub(r"^[-*] ", "", text.strip()))


def paragraphs(root):
    for file in documents(root):
        if file != GENERATED:
            yield from ((file, *paragraph) for paragraph in paragraphs_of_markdown(root, file))
    headers = ["tutti/core.h", "tutti/tutti.h"]
    for umbrella in headers[:2]:
        headers += re.findall(r'^#include "(tutti/.*)"', (root / umbrella).read_text(encoding="utf-8"), re.M)
    for file in dict.fromkeys(headers):
        yield from ((file, *paragraph) for paragraph in paragraphs_of_header(root, file))


def messages(root):
    """File, line and text of each string literal of more than one word, tests excepted."""
    for folder in ("tutti", "apps", "python"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".cc", ".h", ".py") or "_test" in path.name:
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                for text in re.findall(r'"((?:[^"\\]|\\.)*)"|//.*', line):
                    if " " in text.strip():
                        yield str(path.relative_to(root)), number, text, False


def test_names(root):
    """Line and words of each suite and name of a test: of `TEST(Files, AreNamed)`, "files" and "are named"."""
    for path in files_of(root, ("apps", "bench", "examples", "tests", "tutti"), ("*.cc", "*.h", "*.cu")):
        text = path.read_text(encoding="utf-8")
        for test in GOOGLE_TEST.finditer(text):
            number = text.count("\n", 0, test.start()) + 1
            yield from ((str(path.relative_to(root)), number, words_of_name(name), False) for name in test.groups())


def words_of_name(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_", " ", name).lower()


def without_code(text):
    """Code in backticks counts as one word."""
    return plain(re.sub(r"(`+)(.+?)\1", "CODE", text))


def sentences_of(text):
    sentences = []
    for part in SENTENCE_END.split(without_code(text)):
        if sentences and ABBREVIATION.search(sentences[-1]):
            sentences[-1] += " " + part
        else:
            sentences.append(part)
    return [sentence for sentence in sentences if words_in(sentence)]


def words_in(text):
    return sum(any(c.isalnum() for c in word) for word in text.split())


def width(root):
    for file in documents(root):
        for number, line in enumerate(text_of(root, file), 1):
            if len(line) > COLUMNS and file != GENERATED and not re.search(r"^\s*\||\]\(|://|^\[", line):
                yield f"{file}:{number}: {len(line)} columns"


def words(root):
    allowed = Allowed("word")
    for file, number, text, _ in itertools.chain(paragraphs(root), messages(root), test_names(root)):
        text = without_code(text)
        for pattern, use in RETIRED:
            for found in pattern.finditer(text):
                if not allowed.covers(file, found[0].lower()):
                    around = text[max(0, found.start() - 30):found.end() + 30]
                    yield f"{file}:{number}: \"{found[0]}\" (write: {use}): ...{around}..."
    yield from allowed.unused()


def sentences(root):
    allowed = Allowed("sentence")
    for file, number, text, is_whole in paragraphs(root):
        for sentence in sentences_of(text) if is_whole else []:
            if words_in(sentence) > LONGEST and not allowed.covers(file, sentence):
                yield f"{file}:{number}: {words_in(sentence)} words: {sentence}"
    yield from allowed.unused()


def report(root):
    by_file = {}
    for file, _, text, is_whole in paragraphs(root):
        count, lengths = by_file.get(file, (0, []))
        by_file[file] = (count + words_in(plain(text)), lengths + [words_in(s) for s in sentences_of(text)] if is_whole else lengths)
    groups = {"all documents": [], "all public headers": []}
    print(f"{'':48}   words   sentences  median  90 %  longest")
    for file, values in by_file.items():
        groups["all public headers" if file.endswith(".h") else "all documents"].append(values)
        print_row(file, *values)
    for name, values in groups.items():
        print_row(name, sum(count for count, _ in values), [length for _, lengths in values for length in lengths])


def print_row(name, count, lengths):
    lengths = sorted(lengths) or [0]
    ninth = lengths[min(len(lengths) - 1, len(lengths) * 9 // 10)]
    print(f"{name:48} {count:7} {len(lengths):11} {statistics.median(lengths):7.0f} {ninth:5} {lengths[-1]:8}")


CHECKS = {"width": width, "words": words, "sentences": sentences}


def main(check, root):
    root = pathlib.Path(root).resolve()
    if check == "report":
        report(root)
        return 0
    found = list(CHECKS[check](root))
    print("\n".join(found) or f"nothing is wrong with the {check}")
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in (*CHECKS, "report"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
