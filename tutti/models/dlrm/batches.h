#pragma once
// From a source of clicks to what this rank needs for a step: the dense rows and targets of its samples, and the
// lookups of its tables for all samples. Above LibTorch: plain vectors.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/data/clicks/source.h"
#include "tutti/embedding/lookups.h"
#include "tutti/models/dlrm/architecture.h"
#include "tutti/planning/tables/placement.h"

namespace tutti::dlrm {

// One step of the optimizer: one batch, or with gradient accumulation several, one after another.
struct StepBatch {
  std::int64_t first = 0;             // number of the first batch, in its epoch
  std::vector<std::int64_t> sizes;    // samples of each batch
  std::int64_t samples = 0;           // of all of them, on all ranks
  Slice mine;                         // the samples of this rank, counted within `samples`
  std::vector<float> dense, targets;  // of `mine`
  std::vector<Lookups> lookups;       // by table; empty where the table is not this rank's
  std::vector<LookupsView> views() const;
};

struct Reading {
  int rank = 0, ranks = 1;
  std::vector<std::size_t> my_tables;
  std::int64_t accumulate = 1;  // batches to a step
  std::int64_t batches = 0;     // of an epoch; 0: as many as there are
  std::int64_t ahead = 0;       // steps that a thread reads ahead; 0: no thread
};

// Gives the steps of one epoch after another. One thread at a time.
class BatchReader {
 public:
  // `source` has to outlive it.
  BatchReader(ClickSource& source, const Architecture& architecture, Reading reading);
  ~BatchReader();
  BatchReader(const BatchReader&) = delete;

  std::int64_t batches() const { return batches_; }  // of an epoch
  // The next step begins with this batch, of the present epoch or of that one: a source that shuffles has another order
  // in each.
  void seek(std::int64_t batch, std::optional<std::int64_t> epoch = {});
  // Leaves the source to others until the next seek() or next().
  void stop();
  // The next step; good until the next call. After the last of an epoch comes the first of the next. Throws Exception.
  const StepBatch& next();

 private:
  struct Ahead;
  void start();
  void read(std::int64_t first, StepBatch& into);
  std::int64_t after(std::int64_t first) const;

  ClickSource& source_;
  const Architecture architecture_;
  Reading reading_;
  std::int64_t batches_ = 0, next_ = 0, epoch_ = 0;
  std::vector<int> columns_;  // features whose lookups are read
  ClickBatch raw_;
  StepBatch current_;
  std::unique_ptr<Ahead> ahead_;
};

// The lookups of a quotient-remainder feature in its two tables.
void divide_lookups(const Lookups& all, std::int64_t collisions, Lookups& quotients, Lookups& remainders);

}  // namespace tutti::dlrm
