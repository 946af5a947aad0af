#include "tutti/training/same_run.h"

#include <fmt/format.h>

#include <iterator>

#include "tutti/checkpoint/format/value_tree.h"

namespace tutti {
namespace {

std::string text_of(const CheckpointValue& value, const std::vector<const char*>& kinds) {
  if (const auto* const text = std::get_if<std::string>(&value)) return *text;
  const auto* const number = std::get_if<std::int64_t>(&value);
  if (number && *number >= 0 && *number < std::ssize(kinds)) return kinds[std::size_t(*number)];
  return to_string(value);
}

}  // namespace

Status check_same_run(const CheckpointReader& saved, const CheckpointValues& there,
                      const std::vector<RunValue>& values) {
  for (const RunValue& value : values) {
    const auto found = there.find(value.name);
    const bool absent = found == there.end();
    if (absent ? value.may_lack : found->second == value.given) continue;
    const std::string why = absent
                                ? fmt::format("it does not say with which {} it was saved", value.option)
                                : fmt::format("it was saved with {} {}, and {} is given", value.option,
                                              text_of(found->second, value.kinds), text_of(value.given, value.kinds));
    return Error{.code = Code::kMismatch,
                 .detail = fmt::format("the checkpoint {} is of another run: {}", saved.folder(), why),
                 .hint = fmt::format("give the {} of the run that saved it, or save to another folder", value.option)};
  }
  return {};
}

}  // namespace tutti
