// tutti ckpt extract: tensors, a box, or what a rank has, as one safetensors file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/tutti/ckpt/commands.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/io/replace_file.h"
#include "tutti/checkpoint/tools/copy_file.h"

namespace tutti::cli {
namespace in_ckpt_extract {
namespace {

constexpr const char* kSynopsis = "tutti ckpt extract PATH -o FILE [OPTIONS]";
constexpr const char* kFooter = R"(
A whole tensor keeps its name in the result. A box of a tensor is named after both, as emb.0[0:1000, 0:64]. --rank takes
the contents of the file of that rank.

Examples:
  tutti ckpt extract runs/a --tensor 'fc*' -o fc.safetensors
  tutti ckpt extract runs/a --tensor emb.0 --box 3000:4000,: -o rows.safetensors
  tutti ckpt extract runs/a --rank 3 -o rank3.safetensors

Exit codes:
  0  written
  1  a file cannot be read or written
  2  wrong usage, or no such checkpoint)";

struct Texts {
  std::string path, output, box, rank;
  std::vector<std::string> tensors;
  bool force = false;
};

Result<std::vector<CopiedBox>> chosen(const TensorSource& source, const Texts& texts) {
  std::vector<CopiedBox> boxes;
  const auto keys = TUTTI_TRY(choose_tensors(source, texts.tensors));
  if (!texts.box.empty()) {
    if (keys.size() != 1) return usage(fmt::format("--box is of one tensor; these are {}", keys.size()));
    return std::vector<CopiedBox>{{keys[0], TUTTI_TRY(parse_box(texts.box, source.find(keys[0])->shape))}};
  }
  if (!texts.rank.empty()) {
    const int rank = int(TUTTI_TRY(whole_number("--rank", texts.rank, 0, 99'998)));
    for (const RankBox& box : boxes_of_rank(source, rank))
      if (std::find(keys.begin(), keys.end(), box.key) != keys.end()) boxes.push_back({box.key, box.box});
    if (boxes.empty())
      return Error{.code = Code::kNotFound, .detail = fmt::format("rank {} wrote nothing of {}", rank, source.path())};
    return boxes;
  }
  for (const TensorKey& key : keys) {
    const SourceTensor& tensor = *source.find(key);
    if (tensor.is_whole()) {
      boxes.push_back({key, TensorBox::whole(tensor.shape)});
    } else {
      for (const TensorPart& part : tensor.parts) boxes.push_back({key, part.box});
    }
  }
  return boxes;
}

Result<int> act(const Texts& texts) {
  if (texts.path.empty()) return not_given("path", kSynopsis, "tutti ckpt extract runs/a -o FILE");
  if (texts.output.empty()) return usage("--output is missing: the safetensors file to write");
  if (!texts.box.empty() && !texts.rank.empty()) return usage("--box and --rank do not go together");
  const bool is_there = TUTTI_TRY(replaceable_file(texts.output)).existing.has_value();
  const auto source = TUTTI_TRY(open_source(texts.path));
  const auto boxes = TUTTI_TRY(chosen(*source, texts));
  if (is_there && !texts.force)
    return invalid_argument(fmt::format("{} is there already", texts.output), "give another name, or --force");
  std::uint64_t bytes = 0;
  for (const CopiedBox& copied : boxes) bytes += copied.box.elements() * source->find(copied.key)->element_bytes;
  ByteProgress progress("extracting");
  SharedProgress shared(bytes, progress.callback());
  const Status written = replace_file(texts.output, [&](int fd, const std::string& name) {
    return copy_to_file(*source, boxes, {}, fd, name, shared).status();
  });
  progress.clear();
  TUTTI_TRY(written);
  fmt::print("{}: {} tensor{}, {}\n", texts.output, boxes.size(), boxes.size() == 1 ? "" : "s",
             progress.summary(bytes));
  return 0;
}

}  // namespace
}  // namespace in_ckpt_extract

int ckpt_extract_command(std::vector<std::string> arguments) {
  using namespace in_ckpt_extract;
  CLI::App app("Writes tensors of a checkpoint to a safetensors file.", "tutti ckpt extract");
  Texts texts;
  dress(app, kFooter, kSynopsis);
  app.add_option("PATH", texts.path, "a folder of checkpoints, one of them, or a file");
  app.add_option("-o,--output", texts.output, "the safetensors file to write")->type_name("FILE");
  app.add_option("--tensor", texts.tensors, "tensors to extract (all); may be given several times")
      ->type_name("PATTERN")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->allow_extra_args(false);
  app.add_option("--box", texts.box, "extract only these ranges of one tensor, one range per dimension")
      ->type_name("0:10,:");
  app.add_flag("--force", texts.force, "replace FILE if it exists");
  app.add_option("--rank", texts.rank, "extract only what this rank wrote")->type_name("R");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  return end_of(app, act(texts));
}

}  // namespace tutti::cli
