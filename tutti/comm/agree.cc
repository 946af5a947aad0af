#include "tutti/comm/agree.h"

#include "tutti/comm/objects.h"
#include "tutti/comm/told_error.h"

namespace tutti {

Status agree(const Group& group, const Status& mine, CallSite at) {
  if (!group || group.size() == 1) return mine;
  try {
    const auto words = all_gather_bytes(group, mine.ok() ? std::string() : encode_told(mine.error()), {}, at);
    for (int rank = 0; rank < group.size(); ++rank)
      if (!words[std::size_t(rank)].empty()) return decode_told(words[std::size_t(rank)], rank);
    return {};
  } catch (const Exception& error) {
    return error.error();
  }
}

}  // namespace tutti
