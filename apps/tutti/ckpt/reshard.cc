// tutti ckpt reshard: the same checkpoint for another number of ranks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/tutti/ckpt/commands.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/tools/rewrite.h"

namespace tutti::cli {
namespace in_ckpt_reshard {
namespace {

constexpr const char* kSynopsis = "tutti ckpt reshard PATH OUTPUT --ranks N [OPTIONS]";
constexpr const char* kFooter = R"(
Any number of ranks can load any checkpoint as it is. This command makes one whose files match the ranks that will read
it: each rank finds its shard in one file. It checks every byte that it reads, and takes at most 256 MB of memory,
however large the tensors are.

Examples:
  tutti ckpt reshard runs/a runs/a-on-3 --ranks 3
  tutti ckpt reshard runs/a/step-0000200 runs/b --ranks 8 --split columns

Exit codes:
  0  written
  1  a file cannot be read or written
  2  wrong usage, or no such checkpoint)";

struct Texts {
  std::string path, output, ranks, split = "rows";
};

Result<int> act(const Texts& texts) {
  constexpr int kMostRanks = 99'999;
  if (texts.path.empty() || texts.output.empty())
    return not_given(texts.path.empty() ? "path" : "output", kSynopsis, "tutti ckpt reshard runs/a runs/b --ranks 3");
  if (texts.ranks.empty()) return not_given("--ranks", kSynopsis, "tutti ckpt reshard runs/a runs/b --ranks 3");
  const int ranks = int(TUTTI_TRY(whole_number("--ranks", texts.ranks, 1, kMostRanks)));
  const auto split = ShardSplit(TUTTI_TRY(choose("--split", texts.split, {"rows", "columns", "whole"})));
  const auto source = TUTTI_TRY(open_source(texts.path));
  if (!source->facts())
    return usage(fmt::format("{} is no checkpoint of Tutti", texts.path), "tutti ckpt import makes one of it");
  std::uint64_t bytes = 0;
  for (const auto& [key, tensor] : source->tensors()) bytes += tensor.bytes_here();
  ByteProgress progress("resharding");
  const auto written =
      write_checkpoint(*source, deal_out(*source, ranks, split), *source->facts(), texts.output, progress.callback());
  progress.clear();
  const std::string path = TUTTI_TRY(written);
  fmt::print("{}: for {} rank{}, {}\n", path, ranks, ranks == 1 ? "" : "s", progress.summary(bytes));
  return 0;
}

}  // namespace
}  // namespace in_ckpt_reshard

int ckpt_reshard_command(std::vector<std::string> arguments) {
  using namespace in_ckpt_reshard;
  CLI::App app("Reshards a checkpoint for another number of ranks.", "tutti ckpt reshard");
  Texts texts;
  dress(app, kFooter, kSynopsis);
  app.add_option("PATH", texts.path, "a folder of checkpoints (the newest), or one of them");
  app.add_option("OUTPUT", texts.output, "the folder in which step-... is made");
  app.add_option("--ranks", texts.ranks, "number of ranks to reshard for")->type_name("N");
  app.add_option("--split", texts.split, "how tensors are sharded: rows, columns, or whole tensors (rows)")
      ->type_name("HOW");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  return end_of(app, act(texts));
}

}  // namespace tutti::cli
