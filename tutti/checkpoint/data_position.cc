#include "tutti/checkpoint/data_position.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tutti/base/text.h"
#include "tutti/checkpoint/format/manifest.h"
#include "tutti/checkpoint/format/value_tree.h"

namespace tutti {

Result<std::int64_t> place_in_data(const CheckpointReader& saved, const std::string& name, std::int64_t least) {
  const CheckpointValues& data = saved.facts().data;
  const auto found = whole_number(data, name);
  if (found && *found >= least) return *found;
  const auto is = data.find(name);
  std::vector<std::string> names;
  for (const auto& [other, value] : data) names.push_back(other);
  const auto near = is == data.end() ? nearest(name, names) : std::nullopt;
  return invalid_argument(
      fmt::format(
          "the checkpoint {} does not say where to resume the data: its data.{} is {}, expected a whole number, "
          "{} or more",
          saved.folder(), name, is == data.end() ? "not there" : to_string(is->second), least),
      fmt::format("{}tutti ckpt import ... --data {}=N",
                  near ? fmt::format("it has a data.{}; ", *near) : "set it when you make the checkpoint: ", name));
}

std::optional<std::string> meant_data_name(const std::string& given) {
  // Of train_image, train_dlrm and pretrain_gpt.
  static const std::vector<std::string> kNames = {
      "seed",    "samples", "epoch",        "epoch_steps",      "position",        "batch",       "batch_size",
      "batches", "epochs",  "test_batches", "consumed_samples", "sequence_length", "sample_order"};
  if (std::find(kNames.begin(), kNames.end(), given) != kNames.end()) return {};
  return nearest(given, kNames);
}

}  // namespace tutti
