// A GPU that is lost while a model is in training: the error of its rank says so, and those of the peers name the rank.
#include <gmock/gmock.h>

#include <string>

#include "tests/cuda/training.h"
#include "tests/fakes/cuda/cudart.h"
#include "tutti/tensor/device_errors.h"
#include "tutti/training/trainer.h"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// `what`: of rank 1, which loses its GPU.
void expect_reported(const RankBody& body, const std::string& what) {
  const auto outcomes = run_processes(2, body, with_gpus(kStaged));
  EXPECT_THAT(outcomes[1].error, AllOf(HasSubstr(what), HasSubstr("unspecified launch failure"),
                                       HasSubstr("(hint: a kernel failed, or the GPU is lost: dmesg | grep -i xid")));
  EXPECT_THAT(outcomes[0].error, HasSubstr("rank 0: rank 1 "));
}

TEST(LostGpu, IsReportedWhereGradientsAreAveraged) {
  expect_reported(
      [](Group& world) {
        Training training;
        training.options.overlap = Overlap::kOff;
        Trainee trainee(world, gpu_of(world), training);
        trainee.step();
        nn::functional::cross_entropy(trainee.ddp.forward(trainee.x), trainee.y).backward();
        if (world.rank() == 1) fake_cuda_lose(gpu_of(world).index());
        trainee.ddp.finish();
      },
      "group world, rank 1: cuda:1 failed while gradients were averaged: CUDA error: ");
}

class LosingTask final : public Task {
 public:
  explicit LosingTask(const Group& world) : world_(world), trainee_(world, gpu_of(world), {}) {}

  std::int64_t steps_left() const override { return 3 - made_; }
  TrainingStep step(std::int64_t number) override {
    if (number == 2 && world_.rank() == 1) fake_cuda_lose(gpu_of(world_).index());
    trainee_.step();
    ++made_;
    return {.samples = 8};
  }
  void state(StateDict&) override {}
  void run_part(const std::string& when, const std::function<void()>& part) override {
    report_device_errors(
        world_, when, [] { return HeldMemory(); }, part);
  }

 private:
  const Group& world_;
  Trainee trainee_;
  std::int64_t made_ = 0;
};

// LibTorch's error has neither the rank nor a hint.
TEST(LostGpu, IsReportedByTheStepOfATrainer) {
  expect_reported(
      [](Group& world) {
        LosingTask task(world);
        (void)tutti::train(world, task, {.line_seconds = -1});
      },
      "group world, rank 1: cuda:1 failed in step 2: CUDA error: ");
}

}  // namespace
}  // namespace tutti::test
