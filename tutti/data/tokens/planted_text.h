#pragma once
// Text whose entropy is known, and with it the least loss that any model can reach: each letter is drawn by a law that
// hangs on the two letters before it, and the law itself is drawn from a seed.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/random.h"

namespace tutti {

struct PlantedTextOptions {
  std::uint64_t seed = 1;
  int branches = 4;  // letters that may follow a pair, 1 to 27, in falling shares (each half of the one before)
  std::int64_t length = 65536;  // letters of a document
};

// Letters a to z and the blank. Immutable: any thread may call it. Document i is a function of the seed, the branches
// and i, and a longer one begins with the shorter.
class PlantedText {
 public:
  static constexpr int kLetters = 27;

  explicit PlantedText(const PlantedTextOptions& options);  // throws Exception for what cannot be

  std::string document(std::int64_t i) const;
  // In nats a letter: the mean of -log p over a long text, given the two letters before; one; none. The first of them
  // is what a model of tokens of one byte can reach (beyond the first two letters of a document).
  double entropy() const { return entropy_; }
  double entropy_after_one() const { return entropy_after_one_; }
  double entropy_alone() const { return entropy_alone_; }
  // The chance that `next` follows `first` and `second`, which are places in "abc...z ".
  double chance(int first, int second, int next) const;

 private:
  void settle();

  PlantedTextOptions options_;
  std::vector<double> shares_;                                 // of the branches, falling
  std::vector<std::array<std::uint8_t, kLetters>> followers_;  // of each pair: the first `branches` of a shuffled order
  std::vector<double> settled_;                                // how often each pair stands in a long text
  double entropy_ = 0, entropy_after_one_ = 0, entropy_alone_ = 0;
};

}  // namespace tutti
