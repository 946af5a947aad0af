// tutti ckpt merge: the weights alone, in one piece each, for any program that reads safetensors.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/tutti/ckpt/commands.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/tools/rewrite.h"

namespace tutti::cli {
namespace in_ckpt_merge {
namespace {

constexpr const char* kSynopsis = "tutti ckpt merge PATH OUTPUT [OPTIONS]";
constexpr const char* kFooter = R"(
The files have Hugging Face's names: model-00001-of-00003.safetensors and so on, or model.safetensors where one is
enough, and model.safetensors.index.json, which says where each tensor is. Python's safetensors opens them.

Examples:
  tutti ckpt merge runs/a weights
  tutti ckpt merge runs/a weights --tensor 'bottom.*' --max-shard-size 1G

Exit codes:
  0  written
  1  a file cannot be read or written
  2  wrong usage, or no such checkpoint)";

struct Texts {
  std::string path, output, most = "5G";
  std::vector<std::string> tensors;
};

Result<int> act(const Texts& texts) {
  if (texts.path.empty() || texts.output.empty())
    return not_given(texts.path.empty() ? "path" : "output", kSynopsis, "tutti ckpt merge runs/a weights");
  const auto most = parse_bytes(texts.most);
  if (!most || *most == 0)
    return usage(fmt::format("--max-shard-size needs a size, such as 5G; given: {}", texts.most));
  const auto source = TUTTI_TRY(open_source(texts.path));
  std::vector<TensorKey> keys = TUTTI_TRY(choose_tensors(*source, texts.tensors));
  std::erase_if(keys, [](const TensorKey& key) { return !key.state.empty(); });
  if (keys.empty())
    return Error{.code = Code::kNotFound, .detail = fmt::format("{} has no such tensor of a model", source->path())};
  std::uint64_t bytes = 0;
  for (const TensorKey& key : keys) bytes += source->find(key)->elements() * source->find(key)->element_bytes;
  ByteProgress progress("merging");
  const auto written = write_weights(*source, keys, *most, texts.output, progress.callback());
  progress.clear();
  const auto names = TUTTI_TRY(written);
  fmt::print("{}: {} tensor{} in {} file{}, {}\n", texts.output, keys.size(), keys.size() == 1 ? "" : "s", names.size(),
             names.size() == 1 ? "" : "s", progress.summary(bytes));
  return 0;
}

}  // namespace
}  // namespace in_ckpt_merge

int ckpt_merge_command(std::vector<std::string> arguments) {
  using namespace in_ckpt_merge;
  CLI::App app("Writes the weights alone as safetensors with an index.", "tutti ckpt merge");
  Texts texts;
  dress(app, kFooter, kSynopsis);
  app.add_option("PATH", texts.path, "a folder of checkpoints (the newest), one of them, or a file");
  app.add_option("OUTPUT", texts.output, "the folder to write to");
  app.add_option("--max-shard-size", texts.most, "largest size of a file (5G)")->type_name("SIZE");
  app.add_option("--tensor", texts.tensors, "tensors to write (all of the model)")
      ->type_name("PATTERN")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->allow_extra_args(false);
  if (const auto code = parse(app, std::move(arguments))) return *code;
  return end_of(app, act(texts));
}

}  // namespace tutti::cli
