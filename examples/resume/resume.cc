// A job that survives interruptions, without LibTorch. It saves its state now and then, and when it is asked to stop.
// Started again, by `tutti run --max-restarts` after a crash or by a scheduler after a preemption, it resumes from the
// last checkpoint. What a step adds does not depend on the rank that computes it, so the sum is the same for any number
// of ranks and interruptions.
//
//   tutti run -n 2 --max-restarts 3 resume FOLDER STEPS
#include <tutti/core.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kSamples = 64;  // in a step

struct Training {
  std::int64_t sum = 0;
  void state(tutti::StateDict& state) { state.value("sum", sum); }  // saves it, and loads it
};

std::int64_t gradient(std::int64_t step, int sample) { return (step * 31 + sample * 17) % 1009; }

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: resume FOLDER STEPS\n");
    return 2;
  }
  const std::int64_t steps = std::atoll(argv[2]);
  const tutti::Group world = tutti::init();
  Training training;
  tutti::Checkpointer checkpoints(world, {.folder = argv[1], .interval = 100, .keep = 2});
  checkpoints.add("training", training);
  std::int64_t step = checkpoints.resume().step;
  if (world.rank() == 0) {
    std::printf("from step %lld on %d ranks\n", (long long)step, world.size());
    std::fflush(stdout);
  }
  while (step < steps) {
    world.step(++step);  // so that reports name the step
    std::int64_t sum = 0;
    for (int sample = world.rank(); sample < kSamples; sample += world.size()) sum += gradient(step, sample);
    training.sum += tutti::all_reduce(world, sum);
    if (!checkpoints.after(step)) continue;
    if (world.rank() == 0) std::printf("saved at step %lld\n", (long long)step);
    return tutti::kLeftEarly;  // the job was asked to stop
  }
  checkpoints.finish();
  if (world.rank() == 0) std::printf("sum after %lld steps: %lld\n", (long long)step, (long long)training.sum);
}
