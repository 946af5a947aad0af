// The corpus as tests, and what is near it: each seed cut off at every place, and with every byte changed in a few
// ways. A broken promise aborts the test with its word.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/fuzz/targets.h"

namespace tutti::fuzz {
namespace {

using Bytes = std::vector<std::uint8_t>;

std::vector<Bytes> corpus_of(const std::string& target) {
  std::vector<Bytes> corpus;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(TUTTI_FUZZ_CORPUS) + "/" + target)) {
    std::ifstream file(entry.path(), std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

// The promise that these bytes break; empty if none.
std::string broken_by(const Target& target, Input input) {
  try {
    target.run(input);
    return {};
  } catch (const std::exception& e) {
    return e.what();
  }
}

class Corpus : public ::testing::TestWithParam<Target> {};

TEST_P(Corpus, AndItsMutationsKeepThePromises) {
  const std::vector<Bytes> corpus = corpus_of(GetParam().name);
  ASSERT_FALSE(corpus.empty());
  EXPECT_EQ(broken_by(GetParam(), {}), "");
  for (const Bytes& seed : corpus) {
    ASSERT_LE(seed.size(), 4096u) << "seeds are small";
    ASSERT_EQ(broken_by(GetParam(), seed), "") << ::testing::PrintToString(seed);
    const std::size_t step = std::max<std::size_t>(1, seed.size() / 200);
    for (std::size_t i = 0; i < seed.size(); i += step) {
      ASSERT_EQ(broken_by(GetParam(), Input(seed).first(i)), "") << "its first " << i << " bytes";
      for (const std::uint8_t change : {0x01, 0x80, 0xff}) {
        Bytes changed = seed;
        changed[i] ^= change;
        ASSERT_EQ(broken_by(GetParam(), changed), "") << ::testing::PrintToString(changed);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Corpus, ::testing::ValuesIn(kTargets), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tutti::fuzz
