#pragma once
// Where batches of clicks come from. Sources: random.h, synthetic.h, planted.h, packed.h, mlperf.h.
#include <cstdint>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/data/clicks/batch.h"

namespace tutti {

struct ClickShape {
  int dense_features = 0;
  std::vector<std::int64_t> rows;  // of each table: the lookups of table t are in [0, rows[t])
};

// Batches of a dataset by their number. Reading is pure: the same batch and part give the same values whatever was read
// before, and on every rank, so ranks need not agree on an order. Ascending order is the fast one. One thread at a
// time.
class ClickSource {
 public:
  virtual ~ClickSource() = default;

  virtual const ClickShape& shape() const = 0;
  virtual std::int64_t batches() const = 0;
  // Samples of a batch, 0 <= batch < batches().
  virtual std::int64_t samples(std::int64_t batch) const = 0;
  // From now on the batches are those of this epoch, 0 at the start. Only sources that shuffle differ between epochs.
  virtual void set_epoch(std::int64_t) {}
  // Fills `into` with the part. kInvalidArgument: no such batch, sample or table; kCorrupt, kSystem name the file and
  // the place; then `into` holds nothing of use. Every index is in its table.
  virtual Status read(std::int64_t batch, const BatchPart& part, ClickBatch& into) = 0;
};

// kInvalidArgument, in words, where `part` is not a part of that batch.
Status check_part(const ClickSource& source, std::int64_t batch, const BatchPart& part);
// check_part(), then `into` made ready for it: sizes set, lookups empty with offsets {0}.
Status begin_read(const ClickSource& source, std::int64_t batch, const BatchPart& part, ClickBatch& into);

// How a number of samples is cut into batches: as many whole ones as there are, and the rest.
struct BatchCut {
  std::int64_t samples = 0, batch_size = 1;

  std::int64_t batches() const { return (samples + batch_size - 1) / batch_size; }
  std::int64_t begin(std::int64_t batch) const { return batch * batch_size; }
  std::int64_t size(std::int64_t batch) const {
    return samples - begin(batch) < batch_size ? samples - begin(batch) : batch_size;
  }
};

}  // namespace tutti
