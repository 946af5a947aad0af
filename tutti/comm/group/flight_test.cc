#include "tutti/comm/group/flight.h"

#include <gtest/gtest.h>

#include <vector>

#include "tutti/comm/inproc_world.h"

namespace tutti::comm {
namespace {

// What a reader of the record sees of the request.
trace::FlightOperation recorded(const Request& request, FlightPath path) {
  trace::FlightOperation operation;
  describe_flight_call(flight_call(request, {}, path), operation);
  return operation;
}

TEST(FlightCall, OfAReduction) {
  const auto seen =
      recorded({.kind = Kind::kReduce, .dtype = DType::kBF16, .op = ReduceOp::kMax, .root = 3, .count = 5},
               path_of(Algorithm::kRing));
  EXPECT_EQ(seen.call, "reduce (bf16[5], max, root 3)");
  EXPECT_EQ(seen.kind, "reduce");
  EXPECT_EQ(seen.dtype, "bf16");
  EXPECT_EQ(seen.op, "max");
  EXPECT_EQ(seen.root, 3);
  EXPECT_EQ(seen.count, 5u);
  EXPECT_EQ(seen.bytes, 10u);
  EXPECT_EQ(seen.way, "ring");
}

TEST(FlightCall, OfAMessage) {
  const auto seen = recorded({.kind = Kind::kRecv, .dtype = DType::kF32, .root = kAnySource, .tag = 9, .count = 1},
                             FlightPath::kLink);
  EXPECT_EQ(seen.call, "recv (f32[1], from any, tag 9)");
  EXPECT_EQ(seen.root, kAnySource);
  EXPECT_EQ(seen.tag, 9);
  EXPECT_EQ(seen.op, "");
  EXPECT_EQ(seen.way, "link");
}

TEST(FlightCall, OfUnevenPartsHasNoCount) {
  const std::vector<std::size_t> splits = {1, 2};
  const auto seen = recorded({.kind = Kind::kAllToAll, .dtype = DType::kI64, .in_splits = splits, .out_splits = splits},
                             FlightPath::kNotYetKnown);
  EXPECT_EQ(seen.call, "all_to_all (i64[uneven])");
  EXPECT_EQ(seen.count, 0u);
  EXPECT_EQ(seen.way, "");
}

TEST(FlightRecord, IsNotWrittenByAGroupWithoutARecorder) {
  const auto worlds = make_inproc_world(1);
  const auto written = write_flight_record(worlds[0]);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace tutti::comm
