// A rank is killed while kernels run, its own and those of its peers. Only on the double, whose kernels wait for what a
// test wants.
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tests/cuda/training.h"
#include "tests/fakes/cuda/torch_device.h"
#include "tutti/base/error.h"
#include "tutti/base/fd.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/optim/sharded_optimizer.h"

namespace tutti::test {
namespace {

constexpr int kKernelPatience = 20'000;  // milliseconds
constexpr int kVictim = 1, kRanks = 3;

// For kernels: throws if nothing comes.
void await_readable(int fd, const char* what) {
  pollfd wait{fd, POLLIN, 0};
  if (::poll(&wait, 1, kKernelPatience) != 1)
    throw Exception(Error{.code = Code::kTimeout, .detail = std::string("a kernel waits in vain for ") + what});
}

// Kernels that run on all ranks at once, until the victim's kills its process.
class LastKernels {
 public:
  explicit LastKernels(int running) : running_(running) {}
  // Collective.
  void meet(const Group& world) {
    is_victim_ = world.rank() == kVictim;
    const auto pid = all_reduce(world, is_victim_ ? std::int64_t(::getpid()) : 0);
    victim_ = Fd(int(::syscall(SYS_pidfd_open, pid, 0)));
    check(bool(victim_), "pidfd_open: ", std::strerror(errno));
  }
  // On the current stream of this thread.
  void enqueue(at::Device gpu) {
    fakes::enqueue_waiting(fakes::current_stream(gpu), [this] { run(); });
  }

 private:
  void run() const {
    if (!is_victim_) {
      ::eventfd_write(running_, 1);
      return await_readable(victim_.get(), "the end of the victim");
    }
    for (int peers = 1; peers < kRanks; ++peers) {
      await_readable(running_, "the kernels of the peers");
      eventfd_t one = 0;
      ::eventfd_read(running_, &one);
    }
    ::kill(::getpid(), SIGKILL);
  }

  const int running_;  // counts the peers whose kernels run
  bool is_victim_ = false;
  Fd victim_;  // readable when it has exited
};

// Two layers; a hook runs in backward() between them.
struct Halves : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = first->forward(x);
    if (y.requires_grad() && between) y.register_hook([act = between](const at::Tensor&) { act(); });
    return second->forward(y.tanh());
  }
  nn::Linear first{register_module("first", nn::Linear(16, 16))}, second{register_module("second", nn::Linear(16, 16))};
  std::function<void()> between;
};

class ReplicaTraining {
 public:
  ReplicaTraining(const Group& world, const std::shared_ptr<Halves>& net)
      : net_(net),
        ddp_(net, world, {.first_bucket_bytes = 1, .bucket_cap_mb = mebibytes(1)}),
        optimizer_(*net, AdamWOptions{}) {}
  void step(const at::Tensor& x) {
    ddp_.forward(x).square().mean().backward();
    ddp_.finish();
    optimizer_.step();
    optimizer_.zero_grad();
  }
  Tensors weights() { return on_cpu(net_->parameters()); }

 private:
  std::shared_ptr<Halves> net_;
  DataParallel<Halves> ddp_;
  Optimizer optimizer_;
};

class ShardTraining {
 public:
  ShardTraining(const Group& world, const std::shared_ptr<Halves>& net)
      : model_(net, world), optimizer_(model_, AdamWOptions{}) {}
  void step(const at::Tensor& x) {
    model_.forward(x).square().mean().backward();
    optimizer_.step();
    optimizer_.zero_grad();
  }
  Tensors weights() {
    Tensors shards;
    for (const NamedTensor& shard : model_.named_parameters())
      if (shard.tensor.numel() > 0) shards.push_back(shard.tensor);
    return on_cpu(shards);
  }

 private:
  FullySharded<Halves> model_;
  ShardedOptimizer optimizer_;
};

template <class Steps>
void expect_the_step_ends_on_the_peers(const char* engine) {
  const Fd running(::eventfd(0, EFD_SEMAPHORE));
  const RankBody body = [&](Group& world) {
    const at::Device gpu = gpu_of(world);
    const at::Tensor x = at::ones({4, 16}, gpu);
    at::manual_seed(3);
    const auto net = std::make_shared<Halves>();
    net->to(gpu);
    Steps steps(world, net);
    steps.step(x);
    LastKernels kernels(running.get());
    kernels.meet(world);
    const Tensors before = steps.weights();
    net->between = [&] { kernels.enqueue(gpu); };
    const std::string text = sentence_of([&] { steps.step(x); });
    expect_words(text, "PeerLost: ");
    expect_words(text, "rank 1 ");
    check_close(steps.weights(), before, "weights", 0);
  };
  const auto outcomes = run_processes(kRanks, body, with_gpus(engine));
  EXPECT_TRUE(outcomes[kVictim].signal == SIGKILL && !outcomes[kVictim].hung) << describe(outcomes);
  for (const int survivor : {0, 2}) EXPECT_EQ(outcomes[std::size_t(survivor)].error, "") << "rank " << survivor;
}

class KilledWhileKernelsRun : public ::testing::TestWithParam<const char*> {};

TEST_P(KilledWhileKernelsRun, NoReplicaSteps) { expect_the_step_ends_on_the_peers<ReplicaTraining>(GetParam()); }

TEST_P(KilledWhileKernelsRun, NoShardSteps) { expect_the_step_ends_on_the_peers<ShardTraining>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Engines, KilledWhileKernelsRun,
                         ::testing::Values(kStaged, kIpc
#ifdef TUTTI_HAS_NCCL
                                           ,
                                           kNccl
#endif
                                           ),
                         [](const auto& info) { return name_of_engine(info.param); });

}  // namespace
}  // namespace tutti::test
