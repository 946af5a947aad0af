#pragma once
// What random and synthetic clicks share: a batch comes out of one generator of numpy in a fixed order.
#include <cstdint>
#include <memory>
#include <vector>

#include "tutti/base/random.h"
#include "tutti/data/clicks/source.h"

namespace tutti {

// How the rows of a bag are drawn, of a given number of draws.
class BagLaw {
 public:
  virtual ~BagLaw() = default;
  // Adds the rows of one bag of a table.
  virtual void draw(NumpyRandom& random, std::size_t table, std::int64_t size, std::vector<std::int64_t>& rows) = 0;
  // Leaves `random` as draw() would.
  virtual void skip(NumpyRandom& random, std::int64_t size) = 0;
};

// The names in comments are the options of dlrm_s_pytorch.py.
struct DrawnClickOptions {
  ClickShape shape;
  std::int64_t samples = 1;              // --data-size
  std::int64_t batch_size = 1;           // --mini-batch-size
  std::int64_t batches = 0;              // --num-batches: above 0 it is so many whole batches, whatever `samples`
  std::int64_t indices_per_lookup = 10;  // --num-indices-per-lookup: at most so many draws a bag ...
  bool fixed_indices = false;            // --num-indices-per-lookup-fixed: ... or as many, always
  bool round_targets = false;            // --round-targets: 0 or 1
  std::uint32_t seed = 123;              // --numpy-rand-seed; the generator starts anew with batch 0
};

// kInvalidArgument: options that make no data.
Result<std::unique_ptr<ClickSource>> make_drawn_clicks(DrawnClickOptions options, std::unique_ptr<BagLaw> law);

}  // namespace tutti
