// The loop of train_dlrm where a program cannot be stopped at the right moment, and its times without a clock.
#include "tutti/models/dlrm/training.h"

#include <gtest/gtest.h>

#include <csignal>

#include "tests/harness/checkpoints.h"
#include "tests/harness/ranks.h"
#include "tutti/comm/stop_request.h"
#include "tutti/models/dlrm/iteration_timer.h"

namespace tutti::dlrm {
namespace {

// Told to stop before its first batch, a run of one batch has nothing left to be started again for.
TEST(DlrmTraining, AStopRequestInTheLastBatchLetsTheRunFinish) {
  for (const std::int64_t epochs : {1, 2}) {
    for (const double threshold : {0.0, 1e-9}) {
      const test::TemporaryFolder folder;
      const auto outcomes = test::run_processes(1, [&](Group& world) {
        Options options;
        options.training.epochs = epochs;
        options.report.test_freq = threshold > 0 ? 1 : -1;
        options.report.accuracy_threshold = threshold;
        options.data.round_targets = true;
        options.data.size = options.training.batch = 16;
        auto sources = open_sources(options).or_throw();
        const auto& shape = sources.train->shape();
        const auto architecture =
            architecture_of(options.architecture, shape.dense_features, shape.rows, sources.where).or_throw();
        request_stop(SIGTERM);
        const auto result = run(world, options, architecture, sources, {.folder = folder.path() + "/run"});
        test::check((result.accuracy > threshold) == (threshold > 0), "accuracy ", result.accuracy);
        const bool finished = epochs == 1 || threshold > 0;
        test::check(result.training.steps == 1 && result.training.stopped != finished, epochs, " epochs, threshold ",
                    threshold, ": ", result.training.steps, " steps, stopped: ", int(result.training.stopped));
      });
      EXPECT_EQ(test::describe(outcomes), "");
    }
  }
}

TEST(DlrmIterationTimer, CountsAStepOrFromBatchToBatch) {
  const auto at = [](double seconds) { return Clock::time_point() + from_seconds(seconds); };
  IterationTimer step(IterationSpan::kStep), batch(IterationSpan::kBatchToBatch);
  const auto counts = [&](double begin, double end, double of_step, double of_batch) {
    for (auto* const timer : {&step, &batch}) timer->begin(at(begin));
    EXPECT_NEAR(step.end(at(end)), of_step, 1e-6) << begin;
    EXPECT_NEAR(batch.end(at(end)), of_batch, 1e-6) << begin;
  };
  counts(1, 1.5, 0.5, 0);
  counts(4, 4.25, 0.25, 3);
  counts(5, 6, 1, 1);
  for (auto* const timer : {&step, &batch}) timer->pause();
  counts(100, 101, 1, 0);
  counts(102, 104, 2, 2);
}

}  // namespace
}  // namespace tutti::dlrm
