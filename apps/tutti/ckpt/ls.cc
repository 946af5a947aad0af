// tutti ckpt ls: a line for each tensor.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/tutti/ckpt/commands.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/folder/folder.h"
#include "tutti/checkpoint/sources/sources.h"

namespace tutti::cli {
namespace in_ckpt_ls {
namespace {

constexpr const char* kSynopsis = "tutti ckpt ls PATH [PATTERN...] [OPTIONS]";
constexpr const char* kFooter = R"(
In a folder with several checkpoints, the command reads the newest. The optimizer state momentum of fc.weight is called
fc.weight/momentum. PATTERN is a name, or one with * and ?.

Examples:
  tutti ckpt ls runs/a
  tutti ckpt ls runs/a/step-0000200 'emb.*'
  tutti ckpt ls model.safetensors --json
  tutti ckpt ls runs/a --steps

Exit codes:
  0  listed
  1  the checkpoint, or one of --steps, cannot be read
  2  wrong usage, or no such checkpoint)";

struct Line {
  std::string name, type, shape, bytes, place;
};

std::string place_of(const SourceTensor& tensor) {
  std::set<std::string> files;
  for (const TensorPart& part : tensor.parts) files.insert(part.file);
  const std::string where = files.size() == 1 ? *files.begin() : fmt::format("{} files", files.size());
  if (!tensor.is_whole()) {
    std::string boxes;
    for (const TensorPart& part : tensor.parts) boxes += (boxes.empty() ? "" : " ") + box_text(part.box);
    return fmt::format("only {} in {}", boxes.empty() ? "nothing" : boxes, where);
  }
  return tensor.parts.size() > 1 ? fmt::format("{} boxes in {}", tensor.parts.size(), where) : where;
}

std::string harmless(const std::string& text) {
  std::string out;
  for (const unsigned char c : text)
    out += c < 0x20 || c == 0x7f ? fmt::format("\\x{:02x}", c) : std::string(1, char(c));
  return out;
}

std::string table(const TensorSource& source, const std::vector<TensorKey>& keys) {
  std::vector<Line> lines;
  std::size_t name = 0, type = 0, shape = 0, bytes = 0;
  for (const TensorKey& key : keys) {
    const SourceTensor& tensor = *source.find(key);
    lines.push_back({harmless(text_of(key)), tensor.dtype, shape_text(tensor.shape),
                     bytes_text(tensor.elements() * tensor.element_bytes), place_of(tensor)});
    name = std::max(name, lines.back().name.size());
    type = std::max(type, lines.back().type.size());
    shape = std::max(shape, lines.back().shape.size());
    bytes = std::max(bytes, lines.back().bytes.size());
  }
  std::string out;
  for (const Line& line : lines)
    out += fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>{}}  {}\n", line.name, name, line.type, type, line.shape, shape,
                       line.bytes, bytes, line.place);
  return out;
}

std::string as_json(const TensorSource& source, const std::vector<TensorKey>& keys) {
  auto list = nlohmann::ordered_json::array();
  for (const TensorKey& key : keys) {
    const SourceTensor& tensor = *source.find(key);
    auto parts = nlohmann::ordered_json::array();
    for (const TensorPart& part : tensor.parts)
      parts.push_back({{"file", part.file}, {"begin", part.box.begin}, {"extent", part.box.extent}});
    list.push_back({{"name", key.name},
                    {"state", key.state},
                    {"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"bytes", tensor.elements() * tensor.element_bytes},
                    {"parts", std::move(parts)}});
  }
  return list.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string heading(const TensorSource& source) {
  std::set<std::string> files;
  std::uint64_t bytes = 0;
  for (const auto& [key, tensor] : source.tensors()) {
    bytes += tensor.bytes_here();
    for (const TensorPart& part : tensor.parts) files.insert(part.file);
  }
  const std::size_t tensors = source.tensors().size();
  return fmt::format("{}: {}, {} tensor{}, {} in {} file{}\n", source.path(), source.format(), tensors,
                     tensors == 1 ? "" : "s", bytes_text(bytes), files.size(), files.size() == 1 ? "" : "s");
}

Result<int> list_steps(const std::string& folder) {
  const auto found = TUTTI_TRY(list_checkpoints(folder));
  std::string out;
  bool all_open = true;
  for (const CheckpointFolder& one : found) {
    const auto source = open_checkpoint(one.path);
    all_open = all_open && source.ok();
    out += source.ok() ? heading(**source) : fmt::format("{}: {}\n", one.path, to_string(source.error()));
  }
  if (found.empty())
    return Error{.code = Code::kNotFound, .detail = fmt::format("there is no checkpoint in {}", folder)};
  std::fputs(out.c_str(), stdout);
  return all_open ? 0 : 1;
}

Result<int> list_tensors(const std::vector<std::string>& words, bool json) {
  const auto source = TUTTI_TRY(open_source(words[0]));
  const auto keys = TUTTI_TRY(choose_tensors(*source, {words.begin() + 1, words.end()}));
  const std::string out = json ? as_json(*source, keys) : heading(*source) + table(*source, keys);
  std::fwrite(out.data(), 1, out.size(), stdout);
  return 0;
}

}  // namespace
}  // namespace in_ckpt_ls

int ckpt_ls_command(std::vector<std::string> arguments) {
  using namespace in_ckpt_ls;
  CLI::App app("Lists the tensors of a checkpoint.", "tutti ckpt ls");
  std::vector<std::string> words;
  bool json = false, steps = false;
  dress(app, kFooter, kSynopsis);
  app.add_option("PATH", words, "a folder of checkpoints, one of them, or a file; after it the PATTERNs of tensors")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--json", json, "print names, types, shapes and boxes as JSON");
  app.add_flag("--steps", steps, "print a line for each checkpoint of the folder");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  if (words.empty()) return end_of(app, not_given("path", kSynopsis, "tutti ckpt ls runs/a"));
  if (steps && (json || words.size() > 1)) return end_of(app, usage("--steps goes with a folder alone"));
  return end_of(app, steps ? list_steps(words[0]) : list_tensors(words, json));
}

}  // namespace tutti::cli
