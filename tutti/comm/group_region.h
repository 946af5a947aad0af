#pragma once
// Traces communication that the calling thread does itself, in its peers' memory or in a call that blocks. It is
// recorded as a region of the thread, so that tables count it, and as a span on the lane of the group, beside the
// asynchronous collectives.
#include <optional>
#include <string>
#include <utility>

#include "tutti/comm/group.h"
#include "tutti/trace/region.h"

namespace tutti {

// From its construction to its destruction, on one thread. Costs a relaxed load while no trace is under way; a group of
// one records nothing. `name`: as for Region; `detail` is called only while tracing, and returns a std::string.
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

inline void GroupRegion::open(const Group& group, const char* name, std::string detail) {
  if (group.size() == 1) return;
  name_ = name;
  lane_ = "group " + group.name();
  detail_ = std::move(detail);
  begin_ = now();
  region_.emplace(name, [&] { return detail_; });
}

inline void GroupRegion::close() {
  region_.reset();
  record_span(lane_, name_, std::move(detail_), begin_, now());
}

}  // namespace tutti
