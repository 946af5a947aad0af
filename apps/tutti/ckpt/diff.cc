// tutti ckpt diff: two of them.
#include "tutti/checkpoint/tools/diff.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/tutti/ckpt/commands.h"
#include "tutti/base/text.h"

namespace tutti::cli {
namespace in_ckpt_diff {
namespace {

constexpr const char* kSynopsis = "tutti ckpt diff PATH PATH [OPTIONS]";
constexpr const char* kFooter = R"(
Prints each tensor that differs, how many of its elements differ, and where the difference is largest. How the tensors
are sharded into files does not count.

Examples:
  tutti ckpt diff runs/a/step-0000100 runs/a/step-0000200
  tutti ckpt diff runs/a weights.safetensors --tolerance 1e-6

Exit codes:
  0  equal
  1  different, or one cannot be read
  2  wrong usage, or no such checkpoint)";

void print(const std::vector<std::string>& lines, const std::string& before, std::size_t most) {
  for (std::size_t i = 0; i < std::min(lines.size(), most); ++i) fmt::print("{}{}\n", before, lines[i]);
  if (lines.size() > most) fmt::print("{}... and {} more\n", before, lines.size() - most);
}

Result<int> act(const std::vector<std::string>& paths, const std::string& tolerance) {
  constexpr std::size_t kMostLines = 1000;
  if (paths.size() != 2) return not_given("two paths", kSynopsis, "tutti ckpt diff runs/a runs/b");
  const double equal = TUTTI_TRY(real_number("--tolerance", tolerance, 0, 1e300));
  const auto first = TUTTI_TRY(open_source(paths[0]));
  const auto second = TUTTI_TRY(open_source(paths[1]));
  ByteProgress progress("comparing");
  const auto result = diff_tensors(*first, *second, equal, progress.callback());
  progress.clear();
  const DiffReport& report = TUTTI_TRY(result);
  print(report.only_first, "only in " + first->path() + ": ", kMostLines);
  print(report.only_second, "only in " + second->path() + ": ", kMostLines);
  print(report.misshapen, "", kMostLines);
  for (const TensorDifference& one : report.different) {
    fmt::print("{}: {} of {} elements differ", text_of(one.key), one.differing, one.elements);
    if (one.is_numeric)
      fmt::print(", most by {:.6g}, at {}: {:.9g} and {:.9g}", one.largest, one.at, one.first, one.second);
    fmt::print("\n");
  }
  print(report.values, "", kMostLines);
  const std::size_t differ = report.different.size() + report.misshapen.size();
  fmt::print("{} tensor{} equal, {} differ{}\n", report.equal, report.equal == 1 ? " is" : "s are", differ,
             differ == 1 ? "s" : "");
  return report.same() ? 0 : 1;
}

}  // namespace
}  // namespace in_ckpt_diff

int ckpt_diff_command(std::vector<std::string> arguments) {
  using namespace in_ckpt_diff;
  CLI::App app("Compares two checkpoints.", "tutti ckpt diff");
  std::vector<std::string> paths;
  std::string tolerance = "0";
  dress(app, kFooter, kSynopsis);
  app.add_option("PATH", paths, "a folder of checkpoints, one of them, or a file")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--tolerance", tolerance, "largest difference that counts as equal (0)")->type_name("X");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  return end_of(app, act(paths, tolerance));
}

}  // namespace tutti::cli
