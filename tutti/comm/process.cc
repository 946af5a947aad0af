#include "tutti/comm/process.h"

namespace tutti {
namespace {

constexpr const char* kErrorKey = "error";
constexpr const char* kFaultKey = "fault";
constexpr Duration kPatience = std::chrono::milliseconds(700);  // for the launcher to say how a rank ended

}  // namespace

Process::~Process() {
  if (farewell) farewell();
  engine.reset();  // its thread uses the members below
  if (host) host->goodbye();
}

std::string Process::root_cause(const Error& mine) {
  if (has_fault()) return fault();
  if (!store) return {};
  // A lost peer or an ended group is the echo of something that somebody else saw first hand.
  const bool echo = mine.code == Code::kPeerLost || mine.code == Code::kAborted;
  if (echo) {
    const auto told = store->check({kErrorKey});
    if (launcher && !(told.ok() && *told)) {
      auto known = launcher->get(kFaultKey, Deadline::after(kPatience));
      if (known.ok()) {
        fault_arrived(*known);
        return *known;
      }
    }
  }
  auto stored = store->compare_set(kErrorKey, std::nullopt, to_string(mine));
  return stored.ok() && stored->value ? *stored->value : std::string();
}

void Process::fault_arrived(const std::string& text) {
  {
    std::lock_guard lock(fault_mutex_);
    if (!fault_.empty()) return;
    fault_ = text;
  }
  has_fault_.store(true, std::memory_order_release);
  if (engine) engine->notify();
}

std::string Process::fault() const {
  std::lock_guard lock(fault_mutex_);
  return fault_;
}

}  // namespace tutti
