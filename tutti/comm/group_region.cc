#include "tutti/comm/group_region.h"

#include <utility>

namespace tutti {

void GroupRegion::open(const Group& group, const char* name, std::string detail) {
  if (group.size() == 1) return;
  name_ = name;
  lane_ = "group " + group.name();
  detail_ = std::move(detail);
  begin_ = now();
  region_.emplace(name, [&] { return detail_; });
}

void GroupRegion::close() {
  region_.reset();
  record_span(lane_, name_, std::move(detail_), begin_, now());
}

}  // namespace tutti
