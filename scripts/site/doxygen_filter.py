"""doxygen_filter.py HEADER: prints a header of Tutti with its comments in Doxygen's form.

Tutti's headers have ordinary comments (`//`): above what they describe, or behind it on the same line. The first
comment of a file describes the file, and the first type if that has no comment. Lines that are indented inside a comment
are code.
"""
import re
import sys


def escaped(text):
    """Text without Doxygen's commands and HTML."""
    return re.sub(r"([\\@<>&#$%])", r"\\\1", text)


def documented(lines):
    about = []  # the comment of the file, until a type got it
    in_comment = in_code = described = False
    for line in lines:
        comment = re.match(r"(\s*)//(?!/) ?(.*)$", line)
        if not comment:
            if in_code:
                yield "/// \\endcode"
                about += ["/// \\endcode"] if not described else []
            described = described or in_comment
            if about and re.match(r"(template <.*> *)?(class|struct|enum class) \w+.*\{|template <", line):
                yield from [] if in_comment else about
                about = []
            in_comment = in_code = False
            behind = re.match(r"(\s*[^\s}#].*?)  // (.*)$", line)
            no_comment = re.sub(r"  // namespace.*", "", line)
            yield f"{behind[1]}  ///< {escaped(behind[2])}" if behind and not line.startswith("namespace") else no_comment
            continue
        indent, text, result = comment[1], comment[2], []
        if not in_comment and not described:
            yield "/// \\file"
        in_comment = True
        is_code = text.startswith("  ")
        if is_code and not in_code:
            result += [f"{indent}/// \\code{{.cpp}}"]
        if in_code and not is_code and text:
            result += [f"{indent}/// \\endcode"]
            in_code = False
        in_code = in_code or is_code
        result += [f"{indent}/// {text if in_code else escaped(text)}".rstrip()]
        yield from result
        about += result if not described else []


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    print(text if sys.argv[1].endswith(".md") else "\n".join(documented(text.split("\n"))))
