#pragma once
// What stands behind a ShardedOptimizer: where averages come from and where new weights go differs between the stages.
#include <limits>
#include <memory>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/parallel/optim/averages.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/parallel/optim/shards.h"

namespace tutti {

struct ShardedOptimizer::State {
  State(Group with, UpdateRule what);
  virtual ~State() = default;

  virtual std::vector<Shard*> shards() = 0;  // by parameter
  virtual void finish() = 0;                 // ends what backward() began; a second call does nothing
  virtual void average() = 0;  // after finish(): all shards of this step have averages, and facts are known
  virtual void step() = 0;     // after finish()
  virtual void forget() = 0;   // gradients and averages
  virtual void zero_grad() = 0;
  virtual bool skips_step() const { return false; }  // after finish()

  // Counts a step of the shard, and says what it does.
  Update next_update(Shard& shard);
  void end_step();

  const Group group;
  UpdateRule rule;
  AverageFacts facts;
  double scale = 1, limit = std::numeric_limits<double>::infinity();  // of the next step
};

// Stages 1 and 2: every rank has all weights.
std::unique_ptr<ShardedOptimizer::State> shards_of(Reducer& reducer, UpdateRule rule, int stage);

}  // namespace tutti
