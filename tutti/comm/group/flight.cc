#include "tutti/comm/group/flight.h"

#include "tutti/comm/group/group_state.h"

namespace tutti::comm {
namespace {

std::string path_name(FlightPath way) {
  switch (way) {
    case FlightPath::kNotYetKnown:
      return {};
    case FlightPath::kDirect:
      return "direct";
    case FlightPath::kLink:
      return "link";
    case FlightPath::kGloo:
      return "gloo";
    case FlightPath::kMpi:
      return "mpi";
    case FlightPath::kNccl:
      return "nccl";
    case FlightPath::kIpc:
      return "ipc";
    case FlightPath::kStaged:
      return "staged";
    case FlightPath::kPlan:
      break;
  }
  return name(Algorithm(int(way) - int(FlightPath::kPlan)));
}

}  // namespace

void describe_flight_call(const trace::FlightCall& call, trace::FlightOperation& o) {
  constexpr std::string_view kCount = "[0]";
  Request r;
  r.kind = Kind(call.shape >> 48 & 0xff);
  r.dtype = DType(call.shape >> 40 & 0xff);
  r.op = ReduceOp(call.shape >> 32 & 0xff);
  r.root = std::int32_t(std::uint32_t(call.shape));
  r.tag = std::int32_t(std::uint32_t(call.extra));
  const bool uneven = is_uneven(r.kind) || (call.extra >> 32 & 1);  // each rank has counts of its own, which may differ
  r.count = uneven ? 0 : call.count;
  o.call = to_string(r);
  if (uneven) o.call.replace(o.call.find(kCount), kCount.size(), "[uneven]");
  o.kind = name(r.kind);
  o.dtype = name(r.dtype);
  if (is_reduction(r.kind)) o.op = name(r.op);
  if (has_root(r.kind) || is_point_to_point(r.kind)) o.root = r.root;
  o.tag = r.tag;
  o.count = r.count;
  o.bytes = o.count * size_of(r.dtype);
  o.way = path_name(FlightPath(call.shape >> 56));
}

}  // namespace tutti::comm

namespace tutti {

Result<std::string> write_flight_record(const Group& group, const std::string& reason) {
  trace::FlightRecorder* const flight = group.state().process().flight.get();
  if (!flight)
    return Error{.code = Code::kUnsupported,
                 .detail = "there is no flight record: TUTTI_FLIGHT_SIZE is 0, or this is a world of one"};
  return flight->write(trace::FlightRecorder::Why::kAsked, reason);
}

}  // namespace tutti
