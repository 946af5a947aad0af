// tutti ckpt import: weights of other programs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <limits>

#include "apps/tutti/ckpt/commands.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/tools/rewrite.h"

namespace tutti::cli {
namespace {

constexpr const char* kFooter = R"(
Reads safetensors (one file, or a folder with an index like Hugging Face's) and what torch.save() wrote, of which nothing is executed: dicts,
lists, numbers, strings, tensors, and the shards of ShardedTensor are read, anything else is refused by its name. Files of several ranks
are put together. A tensor is named by its path, as model.fc.weight; with --path model it is fc.weight. Scalars beside become values.

Examples:
  tutti ckpt import model.safetensors runs/a
  tutti ckpt import checkpoint.pt runs/a --path state.model --step 1000
  tutti ckpt import rank0.pt rank1.pt rank2.pt runs/a --ranks 3

Exit codes: 0 written; 1 something cannot be read or written; 2 wrong usage, or what is not read.)";

struct Texts {
  std::vector<std::string> paths, tensors;
  std::string path, step = "0", ranks = "1";
};

void collect(const ValueTree& tree, const std::string& name, CheckpointValues& values) {
  if (tree.value && !name.empty()) values.emplace(name, *tree.value);
  for (const ValueTree& member : tree.members)
    collect(member, name.empty() ? member.name : name + "." + member.name, values);
}

Result<int> act(const Texts& texts) {
  constexpr int kMostRanks = 99'999;
  if (texts.paths.size() < 2) return usage("which files, and where to? tutti ckpt import model.safetensors runs/a");
  const int ranks = int(TUTTI_TRY(whole_number("--ranks", texts.ranks, 1, kMostRanks)));
  CheckpointFacts facts;
  facts.step = TUTTI_TRY(whole_number("--step", texts.step, 0, std::numeric_limits<std::int64_t>::max()));
  const std::string& output = texts.paths.back();
  const auto source = TUTTI_TRY(open_tensors(std::span(texts.paths).first(texts.paths.size() - 1)));
  if (source->facts())
    return usage(fmt::format("{} is a checkpoint of Tutti already", source->path()),
                 "tutti ckpt reshard deals it out anew");
  const ValueTree* const tree = TUTTI_TRY(find_value(source->about(), texts.path));
  if (source->format() != "safetensors") collect(*tree, "", facts.values);

  const std::string before = texts.path.empty() ? "" : texts.path + ".";
  std::map<TensorKey, TensorKey> renamed;
  for (const TensorKey& key : TUTTI_TRY(choose_tensors(*source, texts.tensors)))
    if (key.name.starts_with(before)) renamed[{key.name.substr(before.size()), ""}] = key;
  if (renamed.empty())
    return Error{.code = Code::kNotFound,
                 .detail = fmt::format("there is no tensor in {} of {}", texts.path, source->path())};
  const auto wanted = rename_tensors(*source, std::move(renamed));
  std::uint64_t bytes = 0;
  for (const auto& [key, tensor] : wanted->tensors()) bytes += tensor.bytes_here();
  ByteProgress progress("importing");
  const auto written =
      write_checkpoint(*wanted, deal_out(*wanted, ranks, ShardSplit::kRows), facts, output, progress.callback());
  progress.clear();
  const std::string path = TUTTI_TRY(written);
  fmt::print("{}: {} tensors, {}\n", path, wanted->tensors().size(), progress.summary(bytes));
  if (!source->has_digests())
    fmt::print("what was read has no digests: whether its bytes are those that were written is not known\n");
  return 0;
}

}  // namespace

int ckpt_import_command(std::vector<std::string> arguments) {
  CLI::App app("Makes a checkpoint of files of other programs.", "tutti ckpt import");
  Texts texts;
  dress(app, kFooter);
  app.add_option("PATH", texts.paths, "what to read, and behind it the folder in which step-... is made")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--path", texts.path, "of the tree only what is there: state.model")->type_name("NAME.NAME");
  app.add_option("--tensor", texts.tensors, "which tensors, by their whole names (all)")
      ->type_name("PATTERN")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->allow_extra_args(false);
  app.add_option("--step", texts.step, "its number (0)")->type_name("N");
  app.add_option("--ranks", texts.ranks, "files for so many ranks, by rows (1)")->type_name("N");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  return end_of(app, act(texts));
}

}  // namespace tutti::cli
