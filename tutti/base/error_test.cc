#include "tutti/base/error.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <set>

namespace tutti {

namespace {

using testing::HasSubstr;

TEST(Error, TextHasRankOperationTimesAndHint) {
  const Error error{.code = Code::kPeerLost,
                    .detail = "closed the connection",
                    .hint = "its log has the cause",
                    .group = "dp",
                    .rank = 2,
                    .operation = "all_reduce #42 (f32[1048576], sum)",
                    .peer = 3,
                    .address = "10.0.0.7:4123",
                    .waited = 12.4,
                    .limit = 30};
  EXPECT_EQ(to_string(error),
            "PeerLost: all_reduce #42 (f32[1048576], sum) on group dp, rank 2: rank 3 at 10.0.0.7:4123 closed the "
            "connection after "
            "12.4 s of 30 s (hint: its log has the cause)");
}

TEST(Error, OmitsUnknownFields) {
  EXPECT_EQ(to_string(Error{.code = Code::kTimeout, .detail = "nobody came"}), "Timeout: nobody came");
  EXPECT_EQ(to_string(Error{.code = Code::kTimeout, .detail = "nobody came", .waited = 2}),
            "Timeout: nobody came after 2 s");
  EXPECT_EQ(to_string(Error{.code = Code::kMismatch, .detail = "differ", .group = "world"}),
            "Mismatch: group world: differ");
  EXPECT_EQ(to_string(Error{.code = Code::kMismatch, .detail = "differ", .rank = 0}), "Mismatch: rank 0: differ");
  EXPECT_EQ(to_string(Error{.code = Code::kUnreachable, .detail = "nobody answers", .address = "10.0.0.7:80"}),
            "Unreachable: nobody answers at 10.0.0.7:80");
  EXPECT_EQ(to_string(Error{.code = Code::kPeerLost, .detail = "went away", .peer = 0}), "PeerLost: rank 0 went away");
}

TEST(Error, EndsWithTheTextOfErrno) {
  EXPECT_EQ(to_string(system_error(ENOENT, "cannot open x", "create it")),
            "System: cannot open x: No such file or directory (hint: create it)");
}

TEST(Error, EveryCodeHasItsOwnName) {
  std::set<std::string> names;
  for (int code = 0; code <= int(Code::kInternal); ++code) names.insert(name(Code(code)));
  EXPECT_EQ(names.size(), size_t(Code::kInternal) + 1);
  EXPECT_FALSE(names.contains("?"));
}

Result<int> half(int value) {
  if (value % 2) return invalid_argument("odd");
  return value / 2;
}
Result<std::string> quarter(int value) {
  const int once = TUTTI_TRY(half(value));
  const int twice = TUTTI_TRY(half(once));
  return std::to_string(twice);
}
Status check(int value) {
  TUTTI_TRY(quarter(value));
  return {};
}

TEST(Result, TryReturnsTheFirstErrorAcrossTypes) {
  EXPECT_EQ(*quarter(12), "3");
  EXPECT_TRUE(check(12).ok());
  ASSERT_FALSE(quarter(6).ok());
  EXPECT_EQ(quarter(6).error().detail, "odd");
  EXPECT_EQ(check(6).error().code, Code::kInvalidArgument);
}

TEST(Result, MovesTypesThatCannotBeCopied) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  EXPECT_EQ(**result, 7);
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
}

TEST(Result, ThrowsAtTheEdgeWithTheWholeText) {
  EXPECT_EQ(half(4).or_throw(), 2);
  try {
    half(3).or_throw();
    FAIL() << "no exception";
  } catch (const Exception& e) {
    EXPECT_STREQ(e.what(), "InvalidArgument: odd");
    EXPECT_EQ(e.error().code, Code::kInvalidArgument);
  }
  EXPECT_NO_THROW(Status().or_throw());
  EXPECT_THROW(Status(invalid_argument("x")).or_throw(), Exception);
}

TEST(Status, CopiesShareTheError) {
  const Status first = invalid_argument("x");
  const Status second = first;
  EXPECT_EQ(&first.error(), &second.error());
}

TEST(Require, PrintsItsOperands) {
  const int given = -2;
  EXPECT_NO_THROW(TUTTI_REQUIRE(given < 0, "unused"));
  try {
    TUTTI_REQUIRE(given >= 0, "the count is ", given, ", expected 0 or more");
    FAIL() << "no exception";
  } catch (const Exception& e) {
    EXPECT_STREQ(e.what(), "InvalidArgument: the count is -2, expected 0 or more");
  }
}

TEST(Invariant, ReportsADefectAndItsLocation) {
  try {
    TUTTI_INVARIANT(1 + 1 == 3, "sums are off");
    FAIL() << "no exception";
  } catch (const Exception& e) {
    EXPECT_EQ(e.error().code, Code::kInternal);
    EXPECT_THAT(e.what(), HasSubstr("sums are off (broken invariant 1 + 1 == 3 at "));
    EXPECT_THAT(e.what(), HasSubstr("error_test.cc"));
    EXPECT_THAT(e.what(), HasSubstr("defect of tutti"));
  }
}

}  // namespace

}  // namespace tutti
