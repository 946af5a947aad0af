// The golden values are those of dlrm_data_pytorch.py with numpy's seed 123.
#include "tutti/data/clicks/synthetic.h"

#include <gmock/gmock.h>

#include <limits>

#include "tutti/data/clicks/clicks_testing.h"
#include "tutti/data/clicks/trace_profile.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Rows = std::vector<std::int64_t>;

const Rows kTrace = {3, 7, 3, 1, 1, 7, 9, 3, 3, 7, 20, 1, 3};

Rows generate(const TraceProfile& profile, bool padding, int count) {
  NumpyRandom random(123);
  TraceGenerator generator(profile, padding);
  Rows trace;
  for (int i = 0; i < count; ++i) trace.push_back(generator.next(random));
  return trace;
}

TEST(TraceProfile, IsThatOfTheReference) {
  const TraceProfile plain = profile_trace(kTrace, false), padded = profile_trace(kTrace, true);
  EXPECT_THAT(plain.lines, ElementsAre(3, 7, 1, 9, 20));
  EXPECT_THAT(plain.distances, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(plain.cumulative, ElementsAre(0.38461538461538464, 0.5384615384615385, 0.6153846153846154,
                                            0.7692307692307693, 0.9230769230769231, 1.0));
  EXPECT_THAT(padded.cumulative, ElementsAre(0.5, 0.625, 0.6875, 0.8125, 0.9375, 1.0));
  EXPECT_EQ(generate(plain, false, 30),
            Rows({3, 7, 1, 1, 7, 9, 3, 7, 7, 20, 1, 7, 7, 9, 9, 1, 3, 20, 20, 20, 1, 9, 20, 9, 1, 7, 3, 20, 9, 3}));
  EXPECT_EQ(generate(padded, true, 30),
            Rows({3, 7, 1, 9, 1, 20, 3, 9, 20, 3, 20, 1, 3, 3, 20, 9, 9, 9, 3, 20, 1, 9, 3, 1, 20, 1, 20, 20, 1, 9}));
}

TEST(TraceProfile, OfNoRepetitionAndOfNothingElse) {
  const TraceProfile fresh = profile_trace(Rows{5, 4, 3}, true), same = profile_trace(Rows{2, 2, 2, 2}, false);
  EXPECT_THAT(fresh.distances, ElementsAre(0));
  EXPECT_THAT(fresh.cumulative, ElementsAre(1));
  EXPECT_EQ(generate(fresh, false, 5), Rows({5, 4, 3, 5, 4}));
  EXPECT_THAT(same.distances, ElementsAre(0, 1));
  EXPECT_EQ(generate(same, false, 3), Rows({2, 2, 2}));
}

TEST(TraceProfile, SurvivesItsText) {
  const TraceProfile profile = profile_trace(kTrace, false);
  const TraceProfile again = parse_trace_profile(to_text(profile)).or_throw();
  EXPECT_EQ(again.lines, profile.lines);
  EXPECT_EQ(again.distances, profile.distances);
  EXPECT_EQ(again.cumulative, profile.cumulative);
  EXPECT_TRUE(parse_trace_profile("1, 2\n0, 1\n0.5, 1.0").ok());
}

TEST(TraceProfile, WhatIsNoneIsRefused) {
  const auto refusal = [](const std::string& text) {
    const auto profile = parse_trace_profile(text);
    return profile.ok() ? "no error" : profile.error().detail;
  };
  EXPECT_THAT(refusal("1, 2\n0, 1\n"), HasSubstr("a profile has 3 lines"));
  EXPECT_THAT(refusal(""), HasSubstr("not 0"));
  EXPECT_THAT(refusal("1, x\n0, 1\n.5, 1\n"), HasSubstr("line 1 (unique accesses): value 2 is ' x', which is no such"));
  EXPECT_THAT(refusal("1, -2\n0, 1\n.5, 1\n"), HasSubstr("a line is negative"));
  EXPECT_THAT(refusal("1, 2\n0, 1\n.5, 1, 1\n"), HasSubstr("2 stack distances and line 3 has 3 probabilities"));
  EXPECT_THAT(refusal("1, 2\n1, 2\n.5, 1\n"),
              HasSubstr("line 2 (stack distances): value 1 is 1, but they ascend from 0"));
  EXPECT_THAT(refusal("1, 2\n0, 0\n.5, 1\n"), HasSubstr("line 2 (stack distances): value 2 is 0"));
  EXPECT_THAT(refusal("1, 2\n0, 3\n.5, 1\n"), HasSubstr("the largest stack distance is 3, but there are only 2 lines"));
  EXPECT_THAT(refusal("1, 2\n0, 1\n.5, .4\n"), HasSubstr("line 3 (cumulative probabilities): value 2 is 0.4"));
  EXPECT_THAT(refusal("1, 2\n0, 1\n.5, nan\n"), HasSubstr("line 3 (cumulative probabilities): value 2 is ' nan'"));
  EXPECT_THAT(refusal("1, 2\n0, 1\n.5, .8\n"), HasSubstr("they go from 0.5 to 0.8, not from above 0 to 1"));
  EXPECT_THAT(refusal("1, 2\n0, 1\n0, 1\n"), HasSubstr("they go from 0 to 1, not from above 0 to 1"));
}

TEST(Trace, IsReadFromTextAndFromBytes) {
  const TestFolder folder;
  EXPECT_EQ(read_trace(folder.write("t", "1, 2,3\n4"), false).or_throw(), Rows({1, 2, 3, 4}));
  EXPECT_EQ(read_trace(folder.write("b", to_binary(kTrace)), true).or_throw(), kTrace);
  EXPECT_EQ(parse_trace(to_text(kTrace)).or_throw(), kTrace);
  EXPECT_THAT(to_string(read_trace(folder.write("t", "1, 2x, 3"), false).error()),
              HasSubstr("access 2 (byte 3) is '2x', which is no line of a table"));
  EXPECT_THAT(to_string(read_trace(folder.write("t", " \n"), false).error()), HasSubstr("there is no access in it"));
  EXPECT_THAT(to_string(read_trace(folder.write("b", "1234567"), true).error()),
              HasSubstr("7 bytes are not a number of 64-bit accesses"));
  EXPECT_THAT(to_string(read_trace(folder.write("b", to_binary(Rows{1, -1})), true).error()),
              HasSubstr("access 2 is 18446744073709551615"));
}

std::vector<Rows> bags(const Lookups& lookups) {
  std::vector<Rows> result;
  for (std::size_t i = 0; i + 1 < lookups.offsets.size(); ++i)
    result.emplace_back(lookups.indices.begin() + lookups.offsets[i], lookups.indices.begin() + lookups.offsets[i + 1]);
  return result;
}

TEST(SyntheticClicks, AreThoseOfTheReference) {
  const TestFolder folder;
  folder.write("dist_0.log", to_text(profile_trace(kTrace, false)));
  folder.write("dist_1.log", to_text(profile_trace(kTrace, false)));
  SyntheticClickOptions options;
  options.shape = {.dense_features = 1, .rows = {30, 8}};
  options.samples = 6;
  options.batch_size = 3;
  options.indices_per_lookup = 12;
  options.trace_file = folder.file("dist_j.log");
  const auto source = make_synthetic_clicks(options).or_throw();
  const ClickBatch first = read_whole(*source, 0), second = read_whole(*source, 1);
  EXPECT_EQ(bags(first.lookups[0]), std::vector<Rows>({{1, 3, 7, 9, 20}, {1, 3, 7, 9, 20}, {1, 3, 7, 9, 20}}));
  EXPECT_EQ(bags(first.lookups[1]), std::vector<Rows>({{1, 3, 7}, {3, 7}, {1, 3, 7, 1}}));
  EXPECT_EQ(bags(second.lookups[0]), std::vector<Rows>({{1, 3, 7, 9}, {1, 3, 7, 9, 20}, {1, 3, 7}}));
  EXPECT_EQ(bags(second.lookups[1]), std::vector<Rows>({{3}, {1, 3, 7, 1}, {1, 3, 7}}));
  EXPECT_THAT(second.targets, ElementsAre(0.7049588561058044f, 0.9953584671020508f, 0.3559148609638214f));
  const auto fresh = make_synthetic_clicks(options).or_throw();
  const ClickBatch part = read_part(*fresh, 1, {.begin = 2, .end = 3, .tables = {1}});
  EXPECT_EQ(part.lookups.at(0).indices, second.lookups[1].indices);
  EXPECT_EQ(part.targets.at(0), second.targets[2]);

  options.shape.rows.push_back(5);
  EXPECT_THAT(to_string(make_synthetic_clicks(options).error()), HasSubstr("cannot open " + folder.file("dist_2.log")));
  folder.write("dist_2.log", "1\n");
  EXPECT_THAT(to_string(make_synthetic_clicks(options).error()),
              HasSubstr(folder.file("dist_2.log") + ": a profile has"));
}

TEST(SyntheticClicks, TheTablesNumberTakesTheLonelyJ) {
  EXPECT_EQ(trace_file_of("./input/dist_emb_j.log", 12), "./input/dist_emb_12.log");
  EXPECT_EQ(trace_file_of("/home/jj/j/dist_j", 3), "/home/jj/j/dist_3");
  EXPECT_EQ(trace_file_of("/j/major.log", 3), "/j/major.log");
  EXPECT_EQ(trace_file_of("j", 3), "3");
}

}  // namespace
}  // namespace tutti
