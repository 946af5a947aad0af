#pragma once
// Communication that the calling thread does itself, in its peers' memory or in a call that blocks, for traces: a
// region on the thread, so that tables count it, and a span on the lane of the group, beside the asynchronous
// collectives'.
#include <optional>
#include <string>

#include "tutti/comm/group.h"
#include "tutti/trace/region.h"

namespace tutti {

// From its construction to its destruction, on one thread. Costs a relaxed load where nobody traces; nothing is
// recorded of a group of one. `name`: as of Region; `detail` is called only while tracing, and returns a std::string.
class GroupRegion {
 public:
  template <class Detail>
  GroupRegion(const Group& group, const char* name, const Detail& detail) {
    if (is_tracing()) [[unlikely]]
      open(group, name, detail());
  }
  GroupRegion(const Group& group, const char* name) : GroupRegion(group, name, [] { return std::string(); }) {}
  ~GroupRegion() {
    if (region_) [[unlikely]]
      close();
  }
  GroupRegion(const GroupRegion&) = delete;
  GroupRegion& operator=(const GroupRegion&) = delete;

 private:
  void open(const Group& group, const char* name, std::string detail);
  void close();

  std::optional<Region> region_;  // none: not traced
  const char* name_ = nullptr;
  std::string lane_, detail_;
  Clock::time_point begin_{};
};

}  // namespace tutti
