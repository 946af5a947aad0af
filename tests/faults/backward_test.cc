// A rank is killed, or throws, in the middle of backward(): the others end with an Exception that names it, from
// backward() or from finish(), long before any limit, whatever way gradients travel. One that is stopped is named when
// the limit is over.
#include <ATen/ATen.h>
#include <signal.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <optional>

#include "tests/faults/worlds.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/data_parallel/hooks/compression.h"
#include "tutti/parallel/data_parallel/hooks/power_sgd.h"
#include "tutti/parallel/data_parallel/join.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/tensor/caching_allocator.h"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Net : public torch::nn::Module {
 public:
  explicit Net(bool sparse)
      : table(register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(50, 300).sparse(sparse)))),
        first(register_module("first", torch::nn::Linear(300, 300))),
        second(register_module("second", torch::nn::Linear(300, 300))) {}
  at::Tensor forward(const at::Tensor& rows, const std::function<void()>& in_backward) {
    auto h = at::tanh(first->forward(table->forward(rows)));
    if (in_backward) h.register_hook([in_backward](const at::Tensor& gradient) { return in_backward(), gradient; });
    return second->forward(h).mean();
  }
  torch::nn::Embedding table;
  torch::nn::Linear first, second;
};

struct Case {
  const char* name;
  Overlap overlap;
  std::string transport = {};
  std::function<std::shared_ptr<CommHook>()> hook = {};
  bool uneven = false;
  int stage = 0;  // of a sharded optimizer; 0: none
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

class InBackward : public ::testing::TestWithParam<Case> {
 protected:
  // Rank 1 does `deed` between the gradients of the second layer and those of the first, in its third step.
  std::vector<Outcome> run(const std::function<void()>& deed, double timeout = 60) {
    const auto body = [&](Group& world) {
      const auto pids = processes_of(world);
      const auto& param = GetParam();
      at::set_num_threads(1);
      DataParallelOptions options{
          .first_bucket_bytes = 1, .bucket_cap_mb = mebibytes(1), .in_place_bytes = 100'000, .overlap = param.overlap};
      if (param.hook) options.hook = param.hook();
      const auto net = std::make_shared<Net>(/*sparse=*/param.stage == 0);
      const HeapTensors heap(world);
      DataParallel ddp(net, world, options);
      std::optional<ShardedOptimizer> optimizer;
      if (param.stage > 0) optimizer.emplace(ddp, AdamOptions{}, ShardedOptimizerOptions{.stage = param.stage});
      const auto rows = at::arange(8, at::kLong);
      const auto train = [&] {
        for (int step = 0; step < (param.uneven && world.rank() == 0 ? 1 : 6); ++step) {
          ddp.zero_grad();
          ddp.forward(rows, world.rank() == 1 && step == 2 ? deed : std::function<void()>()).backward();
          optimizer ? optimizer->step() : ddp.finish();
        }
      };
      try {
        param.uneven ? join_uneven(ddp, train) : train();
      } catch (...) {
        if (world.rank() == 0) ::kill(pids[1], SIGCONT);  // if it was stopped
        throw;
      }
    };
    return run_processes(3, body, {.transport = GetParam().transport, .timeout = timeout});
  }
};

TEST_P(InBackward, AKilledRankIsNamedByAllOthers) {
  const auto outcomes = run([] { ::raise(SIGKILL); });
  EXPECT_EQ(outcomes[1].signal, SIGKILL);
  for (const int rank : {0, 2}) {
    EXPECT_FALSE(outcomes[std::size_t(rank)].hung);
    EXPECT_THAT(outcomes[std::size_t(rank)].error, HasSubstr("PeerLost: ")) << "rank " << rank;
    EXPECT_THAT(outcomes[std::size_t(rank)].error, HasSubstr("rank 1")) << "rank " << rank;
  }
}

TEST_P(InBackward, AStoppedRankIsNamedByAllOthers) {
  const auto outcomes = run([] { ::raise(SIGSTOP); }, /*timeout=*/2);
  for (const int rank : {0, 2}) {
    EXPECT_FALSE(outcomes[std::size_t(rank)].hung);
    EXPECT_THAT(
        outcomes[std::size_t(rank)].error,
        AllOf(HasSubstr("Timeout: "), GetParam().transport.empty() ? HasSubstr("is stopped (SIGSTOP or a debugger)")
                                                                   : HasSubstr("rank 1 gives no answer")))
        << "rank " << rank;
  }
  EXPECT_NE(outcomes[1].error, "") << "awake again it does not go on alone";
}

TEST_P(InBackward, AnExceptionOfOneRankReachesAll) {
  const auto outcomes = run([] { throw std::runtime_error("this sample cannot be"); });
  EXPECT_THAT(outcomes[1].error, HasSubstr("this sample cannot be"));
  for (const int rank : {0, 2}) {
    EXPECT_FALSE(outcomes[std::size_t(rank)].hung);
    EXPECT_THAT(outcomes[std::size_t(rank)].error, HasSubstr("rank 1")) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(
    , InBackward,
    ::testing::Values(Case{"overlapped", Overlap::kOn}, Case{"in_finish", Overlap::kOff},
                      Case{"overlapped_over_tcp", Overlap::kOn, "tcp"},
                      Case{"in_finish_over_tcp", Overlap::kOff, "tcp"},
                      Case{"bf16", Overlap::kOn, "", bf16_compression},
                      Case{"power_sgd", Overlap::kOn, "",
                           [] { return std::make_shared<PowerSgd>(PowerSgdOptions{.start_step = 2}); }},
                      Case{"join_uneven", Overlap::kOff, "", {}, true}, Case{"stage1", Overlap::kOff, "", {}, false, 1},
                      Case{"stage1_over_tcp", Overlap::kOff, "tcp", {}, false, 1},
                      Case{"stage2", Overlap::kOn, "", {}, false, 2},
                      Case{"stage2_over_tcp", Overlap::kOn, "tcp", {}, false, 2},
                      Case{"stage2_join_uneven", Overlap::kOn, "", {}, true, 2}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tutti::test
