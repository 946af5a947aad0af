#pragma once
// A Request as an entry of the flight recorder (tutti/trace/flight/recorder.h), and writing the record on demand.
#include <string>

#include "tutti/base/call_site.h"
#include "tutti/comm/group.h"
#include "tutti/comm/plans/plan.h"
#include "tutti/comm/request.h"
#include "tutti/trace/flight/recorder.h"

namespace tutti::comm {

// The path of an operation: one byte of trace::FlightCall::shape. kPlan + n: Algorithm(n).
enum class FlightPath : std::uint8_t { kNotYetKnown, kDirect, kLink, kGloo, kMpi, kNccl, kIpc, kStaged, kPlan };
inline FlightPath path_of(Algorithm algorithm) { return FlightPath(int(FlightPath::kPlan) + int(algorithm)); }

inline std::uint64_t flight_shape(const Request& r, FlightPath way) {
  return std::uint64_t(way) << 56 | std::uint64_t(r.kind) << 48 | std::uint64_t(r.dtype) << 40 |
         std::uint64_t(r.op) << 32 | std::uint32_t(r.root);
}
inline trace::FlightCall flight_call(const Request& r, CallSite at, FlightPath way) {
  return {.shape = flight_shape(r, way),
          .count = r.count,
          .extra = std::uint64_t(!r.in_splits.empty()) << 32 | std::uint32_t(r.tag),
          .site = at};
}
// The reverse; a trace::FlightRecorder::Describe.
void describe_flight_call(const trace::FlightCall& call, trace::FlightOperation& operation);

}  // namespace tutti::comm

namespace tutti {

// Writes the record of this rank now, as SIGUSR2 does, and returns its path: for programs that use that signal
// themselves. kUnsupported: the recorder is off (TUTTI_FLIGHT_SIZE=0), or this is a world of one.
Result<std::string> write_flight_record(const Group& group, const std::string& reason = "the program asked for it");

}  // namespace tutti
