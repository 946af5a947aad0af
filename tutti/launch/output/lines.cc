#include "tutti/launch/output/lines.h"

#include <algorithm>

namespace tutti {

void LineSplitter::feed(std::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::size_t take = std::min(end == std::string_view::npos ? bytes.size() : end, kLongest - partial_.size());
    const bool whole = take == end;
    if (whole && partial_.empty()) {
      sink(bytes.substr(0, take));
    } else {
      partial_.append(bytes.substr(0, take));
      if (whole || partial_.size() == kLongest) {
        sink(partial_);
        partial_.clear();
      }
    }
    bytes.remove_prefix(take + (whole ? 1 : 0));
  }
}

void LineSplitter::flush(const Sink& sink) {
  if (partial_.empty()) return;
  sink(partial_);
  partial_.clear();
}

void Tail::add(std::string_view line) {
  if (kept_.size() == lines_) kept_.pop_front();
  kept_.emplace_back(line.substr(0, kLongest));
}

}  // namespace tutti
