#pragma once
// Who writes what, found out once: it holds until a rank comes with other boxes, which all ranks have to know at the
// same call.
#include <optional>
#include <span>
#include <string>

#include "tutti/checkpoint/save_part.h"

namespace tutti {

class PlannedPart {
 public:
  // Collective: one small all_reduce, and a new plan where a rank needs one. Whether it is a new one, the same on every
  // rank. Throws Exception where the group ends.
  Result<bool> update(const Group& group, std::span<const SavedBox> boxes, const CheckpointFacts& facts,
                      const SaveOptions& options);
  // Of this rank, after an update() that went well.
  const SavePart& part() const { return *part_; }

 private:
  std::optional<SavePart> part_;
  std::string planned_for_;  // the boxes that part_ is of, as text
};

}  // namespace tutti
