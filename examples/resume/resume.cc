// A job that heals: it saves its step now and then, saves and leaves when it is told to stop, and whoever starts it
// again, be it `tutti run --max-restarts` after a crash or a scheduler after a preemption, goes on from the last save.
// What a step adds depends on the step and the sample alone, not on which rank computes it, so any number of ranks,
// and any number of interruptions, gives the same sum.
//
//   tutti run -n 2 --max-restarts 3 resume FILE STEPS
#include <tutti/core.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

constexpr int kSamples = 64;    // in a step
constexpr int kSaveEvery = 10;  // steps

struct State {
  std::int64_t step = 0, sum = 0;
};

// Beside the old file, which it then replaces: a crash leaves one of the two, whole.
void save(const std::string& path, const State& state) {
  const std::string fresh = path + ".new";
  std::FILE* const file = std::fopen(fresh.c_str(), "wb");
  const bool written = file && std::fwrite(&state, sizeof state, 1, file) == 1;
  if (!file || std::fclose(file) != 0 || !written || std::rename(fresh.c_str(), path.c_str()) != 0) {
    std::fprintf(stderr, "cannot save to %s\n", path.c_str());
    std::exit(1);
  }
}

State load(const std::string& path) {
  State state;
  if (std::FILE* const file = std::fopen(path.c_str(), "rb")) {
    if (std::fread(&state, sizeof state, 1, file) != 1) state = State();
    std::fclose(file);
  }
  return state;
}

std::int64_t gradient(std::int64_t step, int sample) { return (step * 31 + sample * 17) % 1009; }

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: resume FILE STEPS\n");
    return 2;
  }
  const std::string path = argv[1];
  const std::int64_t steps = std::atoll(argv[2]);
  const tutti::Group world = tutti::init();
  State state;
  if (world.rank() == 0) state = load(path);  // one reads for all: then all have the same
  tutti::broadcast(world, std::span<std::int64_t>(&state.step, 1));
  tutti::broadcast(world, std::span<std::int64_t>(&state.sum, 1));
  if (world.rank() == 0) {
    std::printf("from step %lld on %d ranks\n", (long long)state.step, world.size());
    std::fflush(stdout);
  }
  while (state.step < steps) {
    world.step(state.step);
    std::int64_t sum = 0;
    for (int sample = world.rank(); sample < kSamples; sample += world.size()) sum += gradient(state.step, sample);
    state.sum += tutti::all_reduce(world, sum);
    ++state.step;
    const bool stop = world.should_stop();
    if (world.rank() == 0 && (stop || state.step % kSaveEvery == 0)) save(path, state);
    if (stop) {
      if (world.rank() == 0) std::printf("saved at step %lld\n", (long long)state.step);
      return 75;
    }
  }
  if (world.rank() == 0) std::printf("sum after %lld steps: %lld\n", (long long)state.step, (long long)state.sum);
}
