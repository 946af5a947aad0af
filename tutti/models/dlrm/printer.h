#pragma once
// Standard output of a rank: rank 0 speaks, the others when they are asked to.
#include <string>

#include "tutti/comm/group.h"

namespace tutti::dlrm {

class Printer {
 public:
  Printer(const Group& world, bool all) : speaks_(all || world.rank() == 0) {}
  void line(const std::string& text) const {
    if (speaks_) line_of_all(text);
  }
  // On every rank, whatever the options.
  static void line_of_all(const std::string& text);
  bool speaks() const { return speaks_; }

 private:
  bool speaks_;
};

}  // namespace tutti::dlrm
