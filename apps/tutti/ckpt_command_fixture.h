#pragma once
// What the tests of `tutti ckpt` share: a folder with a checkpoint of three ranks in it.
#include <gmock/gmock.h>

#include <span>
#include <string>
#include <vector>

#include "tests/harness/checkpoints.h"
#include "tests/launch/running.h"
#include "tutti/checkpoint/format/safetensors.h"

namespace tutti {

class CkptCommand : public ::testing::Test {
 protected:
  // What three ranks saved by rows.
  void save(std::int64_t step, float shift = 0, const std::string& folder = "a") {
    const auto outcomes = test::run_threads(3, [&](Group& world) {
      const test::RankModel mine = test::rank_model(test::Dealing::kRows, world.rank(), 3, shift);
      const CheckpointFacts facts{.step = step, .values = {{"lr", 0.25}, {"name", std::string("dlrm")}}};
      save_checkpoint(world, path(folder), mine.boxes, facts).or_throw();
    });
    for (const auto& outcome : outcomes) ASSERT_EQ(outcome.error, "");
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  static void flip(const std::string& file, std::size_t byte) {
    std::string text = test::file_text(file);
    text.at(byte) ^= 4;
    test::set_file(file, text);
  }
  static std::vector<float> floats(const SafetensorsFile& file, const std::string& name) {
    const SafetensorsEntry* const entry = file.find(name);
    if (!entry) return {};
    std::vector<float> values(entry->bytes() / 4);
    file.read(*entry, std::as_writable_bytes(std::span(values))).or_throw();
    return values;
  }
  const test::TemporaryFolder folder_;
};

}  // namespace tutti
