#include "tutti/comm/links/call_header.h"

#include <gtest/gtest.h>

namespace tutti::comm {
namespace {

const Request kSum{.kind = Kind::kAllReduce, .dtype = DType::kF32, .op = ReduceOp::kSum, .count = 8};

std::string difference(const Request& theirs, std::uint64_t their_number, const Request& ours, std::uint64_t our_number,
                       Algorithm theirs_by = Algorithm::kRing, Algorithm ours_by = Algorithm::kRing) {
  const auto error =
      compare(header_of(theirs, theirs_by, their_number, 0), expected_header(ours, ours_by, our_number, 1), ours, 1);
  return error ? to_string(*error) : "";
}

Request with(auto change) {
  Request request = kSum;
  change(request);
  return request;
}

TEST(CallHeader, EqualCallsAgree) { EXPECT_EQ(difference(kSum, 42, kSum, 42), ""); }

TEST(CallHeader, UnusedFieldsAreNotCompared) {
  EXPECT_EQ(difference(with([](Request& r) { r.root = 3; }), 1, kSum, 1), "");
  const Request gather{.kind = Kind::kGather, .op = ReduceOp::kMax, .count = 1};
  EXPECT_EQ(difference(gather, 1, with([](Request& r) { r = {.kind = Kind::kGather, .count = 1}; }), 1), "");
}

TEST(CallHeader, ADifferenceShowsBothCalls) {
  const std::string hint = " (hint: every rank of a group has to make the same calls in the same order)";
  EXPECT_EQ(difference(with([](Request& r) { r.count = 7; }), 42, kSum, 42),
            "Mismatch: rank 1 called all_reduce #42 (f32[7], sum), this rank all_reduce #42 (f32[8], sum)" + hint);
  EXPECT_EQ(difference(with([](Request& r) { r.dtype = DType::kF64; }), 42, kSum, 42),
            "Mismatch: rank 1 called all_reduce #42 (f64[8], sum), this rank all_reduce #42 (f32[8], sum)" + hint);
  EXPECT_EQ(difference(with([](Request& r) { r.op = ReduceOp::kMax; }), 42, kSum, 42),
            "Mismatch: rank 1 called all_reduce #42 (f32[8], max), this rank all_reduce #42 (f32[8], sum)" + hint);
  EXPECT_EQ(difference(kSum, 41, kSum, 42),
            "Mismatch: rank 1 called all_reduce #41 (f32[8], sum), this rank all_reduce #42 (f32[8], sum)" + hint);
  EXPECT_EQ(difference({.kind = Kind::kBroadcast, .dtype = DType::kF32, .root = 2, .count = 8}, 42, kSum, 42),
            "Mismatch: rank 1 called broadcast #42 (f32[8], root 2), this rank all_reduce #42 (f32[8], sum)" + hint);
  EXPECT_EQ(difference({}, 42, kSum, 42),
            "Mismatch: rank 1 called barrier #42, this rank all_reduce #42 (f32[8], sum)" + hint);
}

TEST(CallHeader, SplitsMustAgree) {
  const std::size_t sends[] = {3, 4}, expects[] = {1, 5};
  const Request theirs{.kind = Kind::kAllToAll, .in_splits = sends, .out_splits = expects},
      ours{.kind = Kind::kAllToAll, .in_splits = sends, .out_splits = expects};
  EXPECT_EQ(difference(theirs, 1, ours, 1),
            "Mismatch: rank 1 sends 3 elements to this rank, which expects 5 (hint: in_splits of the sender and "
            "out_splits of the receiver must agree)");
}

TEST(CallHeader, CommonSplitsMustBeEqual) {
  const std::size_t some[] = {3, 4}, others[] = {4, 3};
  const Request ours{.kind = Kind::kAllGatherV, .dtype = DType::kF32, .out_splits = some};
  Request theirs = ours;
  EXPECT_EQ(difference(theirs, 1, ours, 1), "");
  theirs.out_splits = others;
  EXPECT_EQ(difference(theirs, 1, ours, 1),
            "Mismatch: rank 1 gave all_gather_v #1 (f32[3+4]) other splits than this rank (hint: every rank of the "
            "group gives the same splits)");
  EXPECT_EQ(difference({.kind = Kind::kGatherV, .count = 5}, 1, {.kind = Kind::kGatherV, .out_splits = some}, 1),
            "Mismatch: rank 1 sends 5 elements to this rank, which expects 4 (hint: out_splits of the root and the "
            "sender's count must agree)");
}

TEST(CallHeader, PlansMustAgree) {
  EXPECT_NE(difference(kSum, 1, kSum, 1, Algorithm::kRing, Algorithm::kRecursiveDoubling)
                .find("by the plan ring, this rank by recursive_doubling"),
            std::string::npos);
}

TEST(CallHeader, ForeignBytesAreRejected) {
  CallHeader came = header_of(kSum, Algorithm::kRing, 1, 0);
  const CallHeader expected = came;
  came.magic = 0x20544547;
  EXPECT_EQ(to_string(*compare(came, expected, kSum, 1)),
            "Mismatch: rank 1 sent bytes that do not begin a call (hint: the two ranks run different "
            "programs, or machines of different "
            "byte order)");
  came = expected;
  came.dtype = DType(200);
  EXPECT_TRUE(compare(came, expected, kSum, 1));
}

}  // namespace
}  // namespace tutti::comm
