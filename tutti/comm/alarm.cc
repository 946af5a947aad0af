#include "tutti/comm/alarm.h"

#include <algorithm>

#include "tutti/comm/group/group_state.h"

namespace tutti {

void set_alarm(const Group& group, const std::string& text) {
  if (!group) return;
  trace::ProgressPage* const page = group.state().process().page.get();
  if (!page) return;
  std::string line = text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  page->set_alarm(line);
}

}  // namespace tutti
