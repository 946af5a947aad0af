#pragma once
// How closely an agent watches its ranks.
#include <optional>

#include "tutti/base/clock.h"
#include "tutti/trace/flight/recorder.h"

namespace tutti {

// What the numbers of a recorded call mean (comm/group/flight.h has it). Null: calls are told by their number only.
using DescribeCall = FlightRecorder::Describe;

struct MonitorOptions {
  // How long no rank may get on before the job ends; none: learned from its steps; 0: for ever.
  std::optional<Duration> hang_timeout;
  DescribeCall describe = nullptr;
};

}  // namespace tutti
