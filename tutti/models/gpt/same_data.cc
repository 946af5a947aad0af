#include "tutti/models/gpt/same_data.h"

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <vector>

namespace tutti::gpt {
namespace {

// By SampleOrder's number.
std::string option_of_order(std::int64_t order) {
  constexpr const char* kOptions[] = {"--dataloader-type single", "--dataloader-type cyclic --no-data-sharding",
                                      "--dataloader-type cyclic"};
  return order >= 0 && order < std::ssize(kOptions) ? kOptions[order] : fmt::format("--dataloader-type {}", order);
}

}  // namespace

CheckpointValues data_values(const Options& options) {
  return {{"sequence_length", std::int64_t(options.model.sequence_length)},
          {"sample_order", std::int64_t(options.order)}};
}

std::vector<std::string> changes_of_data(const CheckpointReader& saved, const Options& options) {
  const CheckpointValues& then = saved.facts().data;
  const CheckpointValues now = data_values(options);
  std::vector<std::string> changes;
  const auto compare = [&](const char* name, const char* so, const auto& text_of) {
    const auto there = whole_number(then, name), here = whole_number(now, name);
    if (!there || there == here) return;
    changes.push_back(fmt::format(
        "the checkpoint {} was saved with {}, and {} is given: the {} samples so far {}, so training repeats some of "
        "the data and skips some (--finetune loads only the weights and restarts the data)",
        saved.folder(), text_of(*there), text_of(*here), whole_number(then, "consumed_samples").value_or(0), so));
  };
  compare("sequence_length", "were of that length",
          [](std::int64_t tokens) { return fmt::format("--seq-length {}", tokens); });
  compare("sample_order", "were the first in that order", [](std::int64_t order) { return option_of_order(order); });
  return changes;
}

Status check_same_seed(const CheckpointReader& saved, const Options& options) {
  const auto there = whole_number(saved.facts().data, "seed");
  if (there == std::int64_t(options.model.seed)) return {};
  return Error{.code = Code::kMismatch,
               .detail = fmt::format("the checkpoint {} is of another run: {}, and --seed {} is given", saved.folder(),
                                     there ? fmt::format("it was saved with --seed {}", *there) : "it has no seed",
                                     options.model.seed),
               .hint = "samples and dropout depend on the seed: give the same, or for its weights alone --finetune"};
}

}  // namespace tutti::gpt
