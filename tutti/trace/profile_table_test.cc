#include "tutti/trace/profile_table.h"

#include <gmock/gmock.h>

namespace tutti {
namespace {

using std::chrono::microseconds;
using testing::HasSubstr;
using testing::Not;

RegionTotals totals(std::string name, std::string detail, std::int64_t calls, int total_us, int self_us) {
  return {.name = std::move(name),
          .detail = std::move(detail),
          .calls = calls,
          .total = microseconds(total_us),
          .self = microseconds(self_us)};
}

const Trace kTrace{.totals = {totals("DLRM forward", "", 2, 2'500'000, 500'000),
                              totals("linear", "[2, 3]", 4, 1'000, 1'000),
                              totals("linear", "[8, 3]", 1, 1'999'000, 1'999'000), totals("never ended", "", 0, 0, 0)}};

// The text in lines, and each line in words.
std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

TEST(ProfileTable, IsSortedBySelfTimeAsPyTorchPrintsIt) {
  EXPECT_EQ(profile_table(kTrace),
            "----------------  ------------  ------------  ------------  ------------  ------------  ------------  \n"
            "            Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls  \n"
            "----------------  ------------  ------------  ------------  ------------  ------------  ------------  \n"
            "          linear        80.00%        2.000s        80.00%        2.000s     400.000ms             5  \n"
            "    DLRM forward        20.00%     500.000ms       100.00%        2.500s        1.250s             2  \n"
            "----------------  ------------  ------------  ------------  ------------  ------------  ------------  \n"
            "Self CPU time total: 2.500s\n");
}

TEST(ProfileTable, OtherOrders) {
  const auto first = [](ProfileOrder order) { return lines(profile_table(kTrace, {.order = order}))[3]; };
  EXPECT_THAT(first(ProfileOrder::kTotalTime), HasSubstr("DLRM forward"));
  EXPECT_THAT(first(ProfileOrder::kCalls), HasSubstr("linear"));
  EXPECT_THAT(first(ProfileOrder::kName), HasSubstr("DLRM forward"));
}

TEST(ProfileTable, DetailsOnLinesOfTheirOwn) {
  const auto text = lines(profile_table(kTrace, {.by_detail = true}));
  EXPECT_THAT(text[1], HasSubstr("Input Shapes"));
  EXPECT_THAT(text[3], testing::AllOf(HasSubstr("linear"), HasSubstr("1.999s"), HasSubstr("[8, 3]")));
  EXPECT_THAT(text[5],
              testing::AllOf(HasSubstr("linear"), HasSubstr("1.000ms"), HasSubstr("250.000us"), HasSubstr("[2, 3]")));
}

TEST(ProfileTable, SkippedRowsAreCounted) {
  const std::string text = profile_table(kTrace, {.most_rows = 1});
  EXPECT_THAT(text, Not(HasSubstr("DLRM forward")));
  EXPECT_THAT(text, HasSubstr("(1 more rows)"));
}

TEST(ProfileTable, LongNamesAreCut) {
  const Trace trace{.totals = {totals(std::string(200, 'n'), "", 1, 7, 7)}};
  EXPECT_THAT(profile_table(trace), HasSubstr("    " + std::string(52, 'n') + "...       100.00%       7.000us"));
}

TEST(ProfileTable, AnEmptyTrace) { EXPECT_THAT(profile_table({}), HasSubstr("Self CPU time total: 0.000us")); }

TEST(ProfileTable, SpansAreNotInIt) {
  Trace trace = kTrace;
  trace.totals.push_back(totals("all_reduce", "", 3, 9'000'000, 9'000'000));
  trace.totals.back().is_span = true;
  EXPECT_EQ(profile_table(trace), profile_table(kTrace));
}

}  // namespace
}  // namespace tutti
