// tutti ckpt verify: every byte.
#include "tutti/checkpoint/tools/verify.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/tutti/ckpt/commands.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/folder/folder.h"

namespace tutti::cli {
namespace in_ckpt_verify {
namespace {

constexpr const char* kSynopsis = "tutti ckpt verify PATH [OPTIONS]";
constexpr const char* kFooter = R"(
One digest covers every byte of a checkpoint: that of a part of a tensor (1 MiB), of the header of a file, or of the
manifest. The command continues after an error, so one run finds all of them. It names file, tensor and bytes, and where
a single byte would explain the error, that byte.

Examples:
  tutti ckpt verify runs/a          the newest checkpoint
  tutti ckpt verify runs/a --all    all checkpoints
  tutti ckpt verify runs/a/step-0000200

Exit codes:
  0  no error found
  1  something is wrong
  2  wrong usage, or no such checkpoint)";

Result<bool> verify(const std::string& path) {
  ByteProgress progress(fmt::format("verifying {}", path));
  const auto result = verify_tensors(path, progress.callback());
  progress.clear();
  const VerifyReport& report = TUTTI_TRY(result);
  warn_of_skipped(report.path, report.skipped);
  for (const Error& trouble : report.troubles) std::printf("%s\n", to_string(trouble).c_str());
  if (!report.troubles.empty()) {
    fmt::print("{}: {} trouble{}\n", report.path, report.troubles.size(), report.troubles.size() == 1 ? "" : "s");
    return false;
  }
  fmt::print("{}: {}, {} tensor{} in {} file{}, {}: {}\n", report.path, report.format, report.tensors,
             report.tensors == 1 ? "" : "s", report.files, report.files == 1 ? "" : "s", progress.summary(report.bytes),
             report.has_digests ? "no error found"
                                : "no error in the layout; it has no digests, which would show whether bytes changed");
  return true;
}

Result<int> act(const std::string& path, bool all) {
  if (path.empty()) return not_given("path", kSynopsis, "tutti ckpt verify runs/a");
  if (!all) return TUTTI_TRY(verify(path)) ? 0 : 1;
  const auto found = TUTTI_TRY(list_checkpoints(path));
  if (found.empty()) return Error{.code = Code::kNotFound, .detail = fmt::format("there is no checkpoint in {}", path)};
  bool well = true;
  for (const CheckpointFolder& one : found) well = TUTTI_TRY(verify(one.path)) && well;
  return well ? 0 : 1;
}

}  // namespace
}  // namespace in_ckpt_verify

int ckpt_verify_command(std::vector<std::string> arguments) {
  using namespace in_ckpt_verify;
  CLI::App app("Checks every byte of a checkpoint.", "tutti ckpt verify");
  std::string path;
  bool all = false;
  dress(app, kFooter, kSynopsis);
  app.add_option("PATH", path, "a folder of checkpoints, one of them, or a file");
  app.add_flag("--all", all, "verify all checkpoints of the folder, not only the newest");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  return end_of(app, act(path, all));
}

}  // namespace tutti::cli
