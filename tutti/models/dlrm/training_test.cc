// The loop of train_dlrm where a program cannot be stopped at the right moment.
#include "tutti/models/dlrm/training.h"

#include <gtest/gtest.h>

#include <csignal>

#include "tests/harness/checkpoints.h"
#include "tests/harness/ranks.h"
#include "tutti/comm/stop_request.h"

namespace tutti::dlrm {
namespace {

// Told to stop before its first batch, a run of one batch has nothing left to be started again for.
TEST(DlrmTraining, ToldToStopInItsLastBatchItHasFinished) {
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
        test::check(result.steps == 1 && result.stopped != finished, epochs, " epochs, threshold ", threshold, ": ",
                    result.steps, " steps, stopped: ", int(result.stopped));
      });
      EXPECT_EQ(test::describe(outcomes), "");
    }
  }
}

}  // namespace
}  // namespace tutti::dlrm
