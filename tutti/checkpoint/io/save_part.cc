#include "tutti/checkpoint/io/save_part.h"

#include <fmt/format.h>

#include "tutti/checkpoint/io/shard_file.h"
#include "tutti/comm/collectives.h"

namespace tutti {
namespace {

// Enough to tell whether a plan still holds.
std::string signature(std::span<const StateBox> boxes) {
  std::string text;
  for (const StateBox& saved : boxes)
    text += fmt::format("{} {}{}{}{}\n", to_string(saved.key), name(saved.dtype), shape_text(saved.shape),
                        box_text(box_of(saved)), saved.may_differ ? " may differ" : "");
  return text;
}

}  // namespace

Result<bool> PlannedPart::update(const Group& group, std::span<const StateBox> boxes, const CheckpointFacts& facts,
                                 const SaveOptions& options) {
  std::string mine = signature(boxes);
  const int changed = !part_ || mine != planned_for_;
  const int anybodys = group && group.size() > 1 ? all_reduce(group, changed, ReduceOp::kMax) : changed;
  if (anybodys == 0) return false;
  part_.reset();
  part_ = TUTTI_TRY(plan_my_part(group, boxes, facts, options));
  planned_for_ = std::move(mine);
  return true;
}

}  // namespace tutti
