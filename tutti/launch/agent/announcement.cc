#include "tutti/launch/agent/announcement.h"

namespace tutti {

std::string announcement(const Layout& layout, const std::string& job, const std::vector<Setting>& settings,
                         const std::vector<std::string>& removed) {
  std::string line = std::to_string(layout.here()) + (layout.here() == 1 ? " rank" : " ranks");
  if (layout.nodes() > 1) {
    line += " (" + std::to_string(layout.first_rank()) + " to " +
            std::to_string(layout.first_rank() + layout.here() - 1) + " of " + std::to_string(layout.world_size()) +
            ") on node " + std::to_string(layout.node) + " of " + std::to_string(layout.nodes());
  }
  line += ", job " + job;
  for (std::size_t i = 0; i < settings.size(); ++i)
    line += (i ? " " : "; set (yours win, --no-tune: none): ") + settings[i].name + "=" + settings[i].value;
  if (!removed.empty())
    line += "; removed " + std::to_string(removed.size()) + (removed.size() == 1 ? " variable" : " variables") +
            " of another launcher (" + removed.front() + (removed.size() > 1 ? ", ...)" : ")");
  return line;
}

}  // namespace tutti
