#include "tutti/parallel/data_parallel/gradient_arrivals.h"

#include <gmock/gmock.h>

namespace tutti {
namespace {

using Arrival = GradientArrivals::Arrival;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(GradientArrivals, EachIsExpectedOnceAStep) {
  GradientArrivals arrivals(3);
  for (int step = 0; step < 2; ++step) {
    EXPECT_TRUE(arrivals.none_came());
    EXPECT_EQ(arrivals.note(2), Arrival::kComplete);
    EXPECT_THAT(arrivals.missing(), ElementsAre(0, 1));
    EXPECT_EQ(arrivals.note(0), Arrival::kComplete);
    EXPECT_EQ(arrivals.note(2), Arrival::kTooOften);
    EXPECT_FALSE(arrivals.all_came());
    EXPECT_EQ(arrivals.note(1), Arrival::kComplete);
    EXPECT_TRUE(arrivals.all_came());
    EXPECT_THAT(arrivals.order(), ElementsAre(2, 0, 1));
    arrivals.begin_step();
  }
}

TEST(GradientArrivals, ASkippedParameterIsNeverMissing) {
  GradientArrivals arrivals(2);
  arrivals.skip(0);
  arrivals.begin_step();
  EXPECT_FALSE(arrivals.takes_part(0));
  EXPECT_EQ(arrivals.note(0), Arrival::kTooOften);
  arrivals.begin_step();
  arrivals.note(1);
  EXPECT_TRUE(arrivals.all_came());
  EXPECT_THAT(arrivals.missing(), IsEmpty());
}

TEST(GradientArrivals, AStaticGraphIsLearntInItsFirstStep) {
  GradientArrivals arrivals(3);
  arrivals.start_learning();
  for (const std::size_t gradient : {1, 0, 1}) EXPECT_EQ(arrivals.note(gradient), Arrival::kNotYet);
  EXPECT_FALSE(arrivals.complete(0));
  EXPECT_TRUE(arrivals.takes_part(2)) << "it may still come";
  arrivals.learn(arrivals.counts());
  arrivals.begin_step();
  EXPECT_FALSE(arrivals.takes_part(2));
  EXPECT_EQ(arrivals.note(1), Arrival::kNotYet);
  EXPECT_EQ(arrivals.note(0), Arrival::kComplete);
  EXPECT_THAT(arrivals.missing(), ElementsAre(1));
  EXPECT_EQ(arrivals.note(1), Arrival::kComplete);
  EXPECT_TRUE(arrivals.all_came());
  EXPECT_EQ(arrivals.note(1), Arrival::kTooOften);
}

}  // namespace
}  // namespace tutti
