// tutti trace merge: Chrome traces of many ranks as one.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "apps/options/help_text.h"
#include "apps/tutti/command.h"
#include "tutti/base/text.h"
#include "tutti/trace/chrome_trace.h"

namespace tutti::cli {
namespace in_trace {
namespace {

constexpr const char* kSynopsis = "tutti trace merge DIR|FILE... [OPTIONS]";
constexpr const char* kFooter = R"(
Traces that Tutti or PyTorch 2.x wrote share one timeline, also across hosts and jobs. Traces of other programs keep
their own times. Files may be gzip files (.json.gz). Open the result in https://ui.perfetto.dev or chrome://tracing.

Examples:
  tutti trace merge traces    all traces/*.json and *.json.gz, into trace.json
  tutti trace merge a.json b.json -o ab.json

Exit codes:
  0  merged
  1  merged, but a file was skipped
  2  wrong usage, or no trace in the input)";

bool same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;  // one that is not there is no other
  return std::filesystem::equivalent(a, b, ignored);
}

Result<int> merge(const std::vector<std::string>& given, const std::string& output) {
  if (given.empty())
    return not_given("trace", kSynopsis, "tutti trace merge traces, the folder with trace-rank0000.json, ...");
  std::vector<std::string> files;
  for (const std::string& path : given) {
    if (!std::filesystem::is_directory(path)) {
      if (same_file(path, output)) return usage(path + " is both input and output", "give another --output");
      files.push_back(path);
      continue;
    }
    for (const auto inside = TUTTI_TRY(traces_in(path)); const auto& file : inside)
      if (!same_file(file, output)) files.push_back(file);  // that is what an earlier merge left there
  }
  const MergedTrace merged = TUTTI_TRY(merge_traces(files, output));
  for (const std::string& note : merged.notes) std::fprintf(stderr, "tutti trace: %s\n", note.c_str());
  std::fprintf(stderr, "%zu events of %zu files in %s: open it in https://ui.perfetto.dev\n", merged.events,
               merged.files, output.c_str());
  return merged.files < files.size() ? 1 : 0;
}

}  // namespace
}  // namespace in_trace

int trace_command(std::vector<std::string> arguments) {
  using namespace in_trace;
  if (arguments.empty()) arguments = {"--help"};
  const std::string first = arguments[0];
  if (first == "merge") {
    arguments.erase(arguments.begin());
  } else if (first != "-h" && first != "--help") {
    const std::vector<std::string> known = {"merge", "--help"};
    report("tutti trace", usage((first[0] == '-' ? "unknown option " : "unknown command ") + first,
                                did_you_mean(nearest(first, known), "tutti trace merge DIR")));
    return 2;
  }
  CLI::App app("Merges the Chrome traces of many ranks into one timeline.", "tutti trace merge");
  set_help(app, kFooter, kSynopsis);
  std::vector<std::string> given;
  std::string output = "trace.json";
  app.add_option("DIR|FILE", given, "folders of traces, or traces")->type_name("");
  app.add_option("-o,--output", output, "file to write (trace.json)")->type_name("FILE");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  const Result<int> code = merge(given, output);
  if (code.ok()) return *code;
  report("tutti trace", code.error());
  return 2;
}

}  // namespace tutti::cli
