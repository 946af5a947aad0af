// A training without LibTorch, whose every number hangs on those before: rows of a table, dealt out, and weights that
// all ranks have. It keeps checkpoints and copies in memory as its arguments say, may kill one of its ranks in the
// first attempts (the n-th of `die` in the n-th), and prints what it ended with.
//
//   launch_training steps=40 copies=10 [folder=DIR [per_node=1]] [interval=N] [die=STEP:RANK,...] [pause=MILLISECONDS]
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tutti/base/crc32c.h"
#include "tutti/base/env.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/checkpointer.h"
#include "tutti/comm/collectives.h"
#include "tutti/runtime/init.h"

namespace tutti {
namespace {

constexpr std::uint64_t kRows = 2000, kColumns = 64, kWeights = 5000;

class Training {
 public:
  explicit Training(const Group& world) : world_(world) {
    const auto rank = std::uint64_t(world.rank()), size = std::uint64_t(world.size());
    first_ = kRows * rank / size;
    table_.resize((kRows * (rank + 1) / size - first_) * kColumns, 1.0f);
  }

  void state(StateDict& state) {
    const TensorShape shape{kRows, kColumns};
    state.tensor({.key = {"table"},
                  .shape = shape,
                  .box = TensorBox::rows(shape, first_, table_.size() / kColumns),
                  .data = table_.data()});
    state.tensor({.key = {"weights"}, .shape = {kWeights}, .data = weights_.data()});
    state.tensor({.key = {"weights", "momentum"}, .shape = {kWeights}, .data = momentum_.data()});
  }

  void step(std::int64_t number) {
    std::vector<float> gradient(kWeights, 0);
    for (std::size_t i = 0; i < table_.size(); ++i) {
      table_[i] += 0.01f * float((i + first_ * kColumns) % 7) * weights_[i % kWeights] + 0.001f * float(number % 11);
      gradient[i % kWeights] += 1e-4f * table_[i];
    }
    all_reduce(world_, std::span<float>(gradient));
    for (std::size_t i = 0; i < kWeights; ++i) {
      momentum_[i] = 0.5f * momentum_[i] + gradient[i] - 0.1f * weights_[i];
      weights_[i] += 0.01f * momentum_[i];
    }
  }

  std::string digest() const {
    std::uint32_t mine = crc32c(std::as_bytes(std::span(weights_)), crc32c(std::as_bytes(std::span(table_))));
    std::vector<std::int64_t> all(std::size_t(world_.size()));
    const std::int64_t word = mine;
    all_gather(world_, std::span<const std::int64_t>(&word, 1), std::span(all));
    return fmt::format("{:08x}", fmt::join(all, "-"));
  }

 private:
  const Group& world_;
  std::uint64_t first_;
  std::vector<float> table_, weights_ = std::vector<float>(kWeights, 0.5f), momentum_ = std::vector<float>(kWeights);
};

std::int64_t number(const std::map<std::string, std::string>& given, const char* name) {
  const auto found = given.find(name);
  return found == given.end() ? 0 : parse_int(found->second).value();
}

int run(const std::map<std::string, std::string>& given) {
  const Group world = init();
  const std::int64_t steps = number(given, "steps");
  Checkpointer checkpoints(world, {.folder = given.contains("folder") ? given.at("folder") : "",
                                   .folder_per_node = given.contains("per_node"),
                                   .interval = number(given, "interval"),
                                   .memory_copy_interval = number(given, "copies")});
  Training training(world);
  checkpoints.add("model", training);
  const std::int64_t begin = checkpoints.resume().step;
  std::int64_t step = begin;
  const auto deaths = given.contains("die") ? split(given.at("die"), ',') : std::vector<std::string>();
  const auto attempt = std::size_t(parse_int(env("TUTTI_GENERATION").value_or("0")).value());
  while (step < steps) {
    training.step(++step);
    if (attempt < deaths.size() && deaths[attempt] == fmt::format("{}:{}", step, world.rank())) ::raise(SIGKILL);
    if (checkpoints.after(step, step == steps)) return kLeftEarly;
    if (world.rank() == 0) fmt::print("step {} of {}\n", step, world.size());
    std::fflush(stdout);
    if (const auto pause = number(given, "pause")) ::usleep(useconds_t(pause) * 1000);
  }
  checkpoints.finish();
  const std::string digest = training.digest();
  if (world.rank() == 0) fmt::print("began after {}, ended with {}\n", begin, digest);
  return 0;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  std::map<std::string, std::string> given;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    given[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  try {
    return tutti::run(given);
  } catch (const tutti::Exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.error().code == tutti::Code::kUsage ? 2 : 1;
  }
}
