// tutti ckpt gpt2: a GPT-2 of Hugging Face becomes one of pretrain_gpt, and back.
#include "tutti/checkpoint/tools/gpt2.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/tutti/ckpt/commands.h"
#include "tutti/base/text.h"

namespace tutti::cli {
namespace {

constexpr const char* kFooter = R"(
From a checkpoint of pretrain_gpt (default shape: LayerNorm, GELU, learned positions, tied embeddings) to a safetensors file under the
names of Hugging Face's GPT2LMHeadModel; from such a file, or the folder of one, to a checkpoint that
'pretrain_gpt --load FOLDER --finetune' begins with, on any grid.

Examples:
  tutti ckpt gpt2 gpt2/model.safetensors runs/gpt2
  tutti ckpt gpt2 runs/a model.safetensors

Exit codes: 0 written; 1 something cannot be read or written; 2 wrong usage, or it is no GPT-2.)";

Result<int> act(const std::string& from, const std::string& to, const std::string& heads) {
  if (from.empty() || to.empty()) return usage("from where, and where to? tutti ckpt gpt2 model.safetensors runs/gpt2");
  const auto count = TUTTI_TRY(whole_number("--heads", heads, 0, 1 << 20));
  const auto source = TUTTI_TRY(open_tensors(from));
  if (source->facts() && count > 0) return usage("--heads is for a file of Hugging Face: a checkpoint knows its own");
  const auto report = TUTTI_TRY(source->facts() ? export_gpt2(*source, to) : import_gpt2(*source, to, count));
  fmt::print("{}: {} tensor{}, {}\n", report.path, report.tensors, report.tensors == 1 ? "" : "s",
             bytes_text(report.bytes));
  return 0;
}

}  // namespace

int ckpt_gpt2_command(std::vector<std::string> arguments) {
  CLI::App app("Turns a GPT-2 of Hugging Face into a checkpoint of pretrain_gpt, or back.", "tutti ckpt gpt2");
  std::string from, to, heads = "0";
  dress(app, kFooter);
  app.add_option("FROM", from, "a checkpoint, a safetensors file, or a folder of either");
  app.add_option("TO", to, "the file, or the folder of checkpoints, to make");
  app.add_option("--heads", heads, "of attention, where there are others than of 64 numbers each")->type_name("N");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  return end_of(app, act(from, to, heads));
}

}  // namespace tutti::cli
