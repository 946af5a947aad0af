// tutti ckpt gpt2: a GPT-2 of Hugging Face becomes one of pretrain_gpt, and back.
#include "tutti/checkpoint/tools/gpt2.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/tutti/ckpt/commands.h"
#include "tutti/base/text.h"

namespace tutti::cli {
namespace in_ckpt_gpt2 {
namespace {

constexpr const char* kSynopsis = "tutti ckpt gpt2 FROM TO [OPTIONS]";
constexpr const char* kFooter = R"(
Converts a checkpoint of pretrain_gpt (default shape: LayerNorm, GELU, learned positions, tied embeddings) to a
safetensors file with the names of Hugging Face's GPT-2, which GPT2LMHeadModel.from_pretrained() reads beside a
config.json. Converts such a file, or its folder, to a checkpoint that 'pretrain_gpt --load FOLDER --finetune' starts
from, on any grid. F16 and BF16 weights become F32. Nothing that is there is replaced.

Examples:
  tutti ckpt gpt2 gpt2/model.safetensors runs/gpt2
  tutti ckpt gpt2 runs/a model.safetensors

Exit codes:
  0  written
  1  a file cannot be read or written
  2  wrong usage, or the input is not a GPT-2)";

Result<int> act(const std::string& from, const std::string& to, const std::string& heads) {
  if (from.empty() || to.empty())
    return not_given(from.empty() ? "path" : "output", kSynopsis, "tutti ckpt gpt2 model.safetensors runs/gpt2");
  const auto count = TUTTI_TRY(whole_number("--heads", heads, 0, 1 << 20));
  const auto source = TUTTI_TRY(open_source(from));
  if (source->facts() && count > 0) return usage("--heads is for a file of Hugging Face: a checkpoint knows its own");
  const auto report = TUTTI_TRY(source->facts() ? export_gpt2(*source, to) : import_gpt2(*source, to, count));
  fmt::print("{}: {} tensor{}, {}\n", report.path, report.tensors, report.tensors == 1 ? "" : "s",
             bytes_text(report.bytes));
  return 0;
}

}  // namespace
}  // namespace in_ckpt_gpt2

int ckpt_gpt2_command(std::vector<std::string> arguments) {
  using namespace in_ckpt_gpt2;
  CLI::App app("Converts a GPT-2 of Hugging Face to a checkpoint of pretrain_gpt, or back.", "tutti ckpt gpt2");
  std::string from, to, heads = "0";
  dress(app, kFooter, kSynopsis);
  app.add_option("FROM", from, "a checkpoint, a safetensors file, or a folder of either");
  app.add_option("TO", to, "the file, or the folder of checkpoints, to make");
  app.add_option("--heads", heads,
                 "number of attention heads (that of config.json beside FROM, else heads of 64 channels)")
      ->type_name("N");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  return end_of(app, act(from, to, heads));
}

}  // namespace tutti::cli
