// tutti ckpt import: weights of other programs, and what torch.optim keeps for them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <tuple>

#include "apps/tutti/ckpt/commands.h"
#include "tutti/base/file.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/data_position.h"
#include "tutti/checkpoint/format/value_tree.h"
#include "tutti/checkpoint/tools/rename.h"
#include "tutti/checkpoint/tools/rewrite.h"
#include "tutti/checkpoint/torch/torch_optimizer.h"

namespace tutti::cli {
namespace in_ckpt_import {
namespace {

constexpr const char* kSynopsis = "tutti ckpt import PATH... OUTPUT [OPTIONS]";
constexpr const char* kFooter = R"(
Reads safetensors (one file, or a folder with an index like Hugging Face's) and files of torch.save(). It executes
nothing from these: it reads dicts, lists, numbers, strings, tensors, and the shards of ShardedTensor. It skips other
objects and lists them; where one holds tensors, --path or --tensor has to exclude it. It puts the files of several
ranks together. A tensor is named by its path, as model.fc.weight; with --path model it is fc.weight. Scalars beside
the tensors become values.

--optimizer says where in a file of PyTorch the state_dict() of an optimizer is. It numbers the parameters as
model.parameters() does. Their names come from the state_dict() of the model, without the buffers of batch
normalization, or from the lines of a file (--parameters), before --strip shortens them. Several groups of parameters without names need that file.
--data and --value add what the training program expects in a checkpoint; run 'tutti ckpt show' on one of its own to see
what that is.

Examples:
  tutti ckpt import model.safetensors runs/a
  tutti ckpt import checkpoint.pt runs/a --path state.model --step 1000
  tutti ckpt import checkpoint.pt runs/a --path model --optimizer optimizer --step 1000
  tutti ckpt import ddp.pt runs/a --path model --strip module.
  tutti ckpt import rank0.pt rank1.pt rank2.pt runs/a --ranks 3

Exit codes:
  0  written
  1  a file cannot be read or written
  2  wrong usage, or contents that cannot be imported)";

struct Texts {
  std::vector<std::string> paths, tensors, data, values;
  std::string path, strip, optimizer, parameters, step = "0", ranks = "1";
};

void collect(const ValueTree& tree, const std::string& name, CheckpointValues& values) {
  if (tree.value && !name.empty()) values.emplace(name, *tree.value);
  for (const ValueTree& member : tree.members)
    collect(member, name.empty() ? member.name : name + "." + member.name, values);
}

// "epoch=3", "name=a run"
Status add_given(const std::string& option, const std::vector<std::string>& given, CheckpointValues& values) {
  for (const std::string& one : given) {
    const auto equals = one.find('=');
    if (equals == std::string::npos || equals == 0)
      return usage(fmt::format("{} needs NAME=VALUE; given: {}", option, one));
    const std::string text = one.substr(equals + 1);
    const auto whole = parse_int(text);
    const auto real = parse_double(text);
    values[one.substr(0, equals)] = text == "true" || text == "false" ? CheckpointValue(text == "true")
                                    : whole                           ? CheckpointValue(*whole)
                                    : real                            ? CheckpointValue(*real)
                                                                      : CheckpointValue(text);
  }
  return {};
}

Result<std::vector<std::string>> lines_of(const std::string& path) {
  constexpr std::uint64_t kMost = std::uint64_t(64) << 20;
  std::vector<std::string> lines;
  if (path.empty()) return lines;
  for (const std::string& line : split(TUTTI_TRY(read_file(path, kMost)), '\n'))
    if (const auto name = trim(line); !name.empty()) lines.emplace_back(name);
  return lines;
}

struct Chosen {
  std::map<TensorKey, TensorKey> tensors;  // new name: old one
  std::map<TensorKey, std::int64_t> numbers;
};

// Takes `prefix` off the names that begin with it.
template <class Value>
Status strip(const std::string& prefix, std::map<TensorKey, Value>& named) {
  std::map<TensorKey, Value> stripped;
  for (const auto& [key, value] : named) {
    TensorKey shorter = key;
    if (shorter.name.starts_with(prefix)) shorter.name.erase(0, prefix.size());
    if (shorter.name.empty() || !stripped.emplace(shorter, value).second)
      return usage(fmt::format("--strip {}: {} {}", prefix, sanitize_line(key.name),
                               shorter.name.empty() ? "has no other name" : "would have the name of another tensor"));
  }
  named = std::move(stripped);
  return {};
}

Result<Chosen> choose(const TensorSource& source, const Texts& texts, CheckpointFacts& facts) {
  Chosen chosen;
  const std::string before = texts.path.empty() ? "" : texts.path + ".";
  std::vector<std::string> patterns = texts.tensors;  // by whole names, or by those behind --path
  for (std::string& pattern : patterns)
    if (!pattern.starts_with(before)) pattern = before + pattern;
  for (const TensorKey& key : TUTTI_TRY(choose_tensors(source, patterns)))
    if (key.name.starts_with(before)) chosen.tensors[{key.name.substr(before.size()), ""}] = key;
  if (chosen.tensors.empty())
    return Error{.code = Code::kNotFound,
                 .detail = texts.path.empty()
                               ? fmt::format("there is no tensor in {}", source.path())
                               : fmt::format("there is no tensor in {} of {}", texts.path, source.path()),
                 .hint = "tutti ckpt ls lists them"};
  if (!texts.strip.empty() && std::none_of(chosen.tensors.begin(), chosen.tensors.end(), [&](const auto& tensor) {
        return tensor.first.name.starts_with(texts.strip);
      }))
    return usage(fmt::format("--strip {}: no name begins with it; the first is {}", texts.strip,
                             sanitize_line(chosen.tensors.begin()->first.name)));
  if (texts.optimizer.empty()) return chosen;
  const TorchOptimizerOptions options{.optimizer = texts.optimizer,
                                      .model = texts.path,
                                      .parameters = TUTTI_TRY(lines_of(texts.parameters)),
                                      .step = facts.step};
  TorchOptimizer optimizer = TUTTI_TRY(read_torch_optimizer(source, options));
  const auto is_chosen = [&](const TensorKey& key) { return chosen.tensors.contains({key.name, ""}); };
  for (const auto& [key, old] : optimizer.tensors)
    if (is_chosen(key)) chosen.tensors[key] = old;
  for (const auto& [key, number] : optimizer.numbers)
    if (is_chosen(key)) chosen.numbers[key] = number;
  facts.values.merge(optimizer.values);
  return chosen;
}

// A tensor inside an object that is not read is skipped only if the user excludes it.
Status check_skipped(const TensorSource& source, const Texts& texts) {
  const auto is_in = [](const std::string& path, const std::string& part) {
    return part.empty() || path == part || path.starts_with(part + ".");
  };
  for (const auto& [path, type, tensors] : source.skipped()) {
    if (tensors == 0) continue;
    const bool of_optimizer = !texts.optimizer.empty() && is_in(path, texts.optimizer);
    if (!of_optimizer && (!texts.tensors.empty() || !is_in(path, texts.path))) continue;
    return Error{.code = Code::kUnsupported,
                 .detail = fmt::format("{}: {}, of type {} with {} tensor{}, is not read", source.path(),
                                       sanitize_line(path), type, tensors, tensors == 1 ? "" : "s"),
                 .hint = of_optimizer ? "save a state_dict() of plain tensors, or import without --optimizer"
                                      : "save a state_dict() of plain tensors, or exclude it by --path or --tensor"};
  }
  return {};
}

Error with_file(Error error, const std::string& path) {
  error.detail = fmt::format("{}: {}", path, error.detail);
  return error;
}

Result<int> act(const Texts& texts) {
  constexpr int kMostRanks = 99'999;
  if (texts.paths.size() < 2)
    return not_given(texts.paths.empty() ? "path" : "output", kSynopsis, "tutti ckpt import model.safetensors runs/a");
  if (!texts.parameters.empty() && texts.optimizer.empty())
    return usage("--parameters is for --optimizer, which is not given");
  const int ranks = int(TUTTI_TRY(whole_number("--ranks", texts.ranks, 1, kMostRanks)));
  CheckpointFacts facts;
  facts.step = TUTTI_TRY(whole_number("--step", texts.step, 0, std::numeric_limits<std::int64_t>::max()));
  const std::string& output = texts.paths.back();
  const auto source = TUTTI_TRY(open_source(std::span(texts.paths).first(texts.paths.size() - 1)));
  if (source->facts())
    return usage(fmt::format("{} is a checkpoint of Tutti already", source->path()),
                 "tutti ckpt reshard changes its number of ranks");
  TUTTI_TRY(check_skipped(*source, texts));
  const auto found = find_value(source->about(), texts.path);
  if (!found.ok()) return with_file(found.error(), source->path());
  const ValueTree* const tree = *found;
  if (source->format() != "safetensors") collect(*tree, "", facts.values);
  Chosen chosen = TUTTI_TRY(choose(*source, texts, facts));
  TUTTI_TRY(strip(texts.strip, chosen.tensors));
  TUTTI_TRY(strip(texts.strip, chosen.numbers));
  TUTTI_TRY(add_given("--data", texts.data, facts.data));
  for (const auto& [name, value] : facts.data)
    if (const auto meant = meant_data_name(name))
      log::warn(
          fmt::format("--data {}: none of train_image, train_dlrm and pretrain_gpt reads this name; did you mean "
                      "--data {}={}?",
                      name, *meant, to_string(value)));
  TUTTI_TRY(add_given("--value", texts.values, facts.values));

  const auto wanted = rename_tensors(*source, std::move(chosen.tensors), std::move(chosen.numbers));
  std::uint64_t bytes = 0;
  for (const auto& [key, tensor] : wanted->tensors()) bytes += tensor.bytes_here();
  ByteProgress progress("importing");
  const auto written =
      write_checkpoint(*wanted, deal_out(*wanted, ranks, ShardSplit::kRows), facts, output, progress.callback());
  progress.clear();
  const std::string path = TUTTI_TRY(written);
  const std::size_t tensors = wanted->tensors().size();
  fmt::print("{}: {} tensor{}, {}\n", path, tensors, tensors == 1 ? "" : "s", progress.summary(bytes));
  if (const std::string left = find_torch_optimizer(*source); texts.optimizer.empty() && !left.empty())
    fmt::print("{0} holds an optimizer's state without names: --path MODEL --optimizer {0} adds them\n", left);
  if (!source->has_digests()) fmt::print("the files have no digests, so their bytes could not be verified\n");
  return 0;
}

}  // namespace
}  // namespace in_ckpt_import

int ckpt_import_command(std::vector<std::string> arguments) {
  using namespace in_ckpt_import;
  CLI::App app("Makes a checkpoint from files of other programs.", "tutti ckpt import");
  Texts texts;
  dress(app, kFooter, kSynopsis);
  app.add_option("PATH", texts.paths, "files to read; the last PATH is the folder in which step-... is made")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--path", texts.path, "import only this part of the tree: state.model")->type_name("NAME.NAME");
  app.add_option("--strip", texts.strip, "remove this prefix from names: module. (DistributedDataParallel)")
      ->type_name("PREFIX");
  app.add_option("--optimizer", texts.optimizer,
                 "also import the optimizer whose state_dict() is at this place of the tree")
      ->type_name("NAME.NAME");
  app.add_option("--parameters", texts.parameters, "names of the parameters in the optimizer's order, one per line")
      ->type_name("FILE");
  app.add_option("--tensor", texts.tensors, "tensors to import (all), by their whole names or by the part after --path")
      ->type_name("PATTERN")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->allow_extra_args(false);
  app.add_option("--step", texts.step, "step number of the checkpoint (0)")->type_name("N");
  for (const auto& [name, into, words] : {std::tuple("--data", &texts.data, "position in the data: epoch=3"),
                                          {"--value", &texts.values, "value to add: lr=0.1"}})
    app.add_option(name, *into, words)
        ->type_name("NAME=VALUE")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->expected(1)
        ->allow_extra_args(false);
  app.add_option("--ranks", texts.ranks, "number of ranks to shard for, by rows (1)")->type_name("N");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  return end_of(app, act(texts));
}

}  // namespace tutti::cli
