#pragma once
// The state of a ShardedOptimizer. Stages differ in where averages come from and where new weights go.
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/comm/group.h"
#include "tutti/parallel/gradients/findings.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/parallel/optim/shards.h"

namespace tutti {

struct ShardedOptimizer::State {
  // Every rank calls: rules and options ("name = value") are compared.
  State(Group with, GroupedRules what, std::vector<NamedValue> options = {});
  virtual ~State() = default;

  virtual std::vector<Shard*> shards() = 0;  // by parameter
  virtual void finish() = 0;                 // ends what backward() began; a second call does nothing
  virtual void average() = 0;  // after finish(): all shards of this step have averages, and findings are known
  virtual void step() = 0;     // after finish()
  virtual void forget() = 0;   // gradients and averages
  virtual void zero_grad() = 0;
  virtual bool skips_step() const { return false; }  // after finish()
  virtual bool is_finished() const = 0;              // finish() has been called in this step

  // Where ranks may have run out of data (join_uneven()), who leads those that have not.
  virtual std::optional<int> leader() const { return std::nullopt; }

  // What a ShardedOptimizer does, on ranks with data.
  GradientNorm clip_grad_norm(double max_norm);
  std::int64_t zero_averages();
  void make_step();
  void skip_step();
  // The same on a rank that has run out, until the others' step is over: it asks their leader what they do.
  void follow(int leader);

  // Settles the findings, and sets `refused` if a gradient is not finite. Every rank calls: a barrier. `where`
  // continues the sentence.
  void refuse_non_finite(const std::string& where, const std::string& more_hint);

  // Counts a step of the shard, and says what it does.
  Update next_update(Shard& shard);

  const Group group;
  Group model{};  // ShardedOptimizerOptions
  GroupedRules rules;
  GradientFindings findings;
  double factor = 1;  // that makes averages of what finish() and average() leave in the shards
  double scale = 1, limit = std::numeric_limits<double>::infinity();  // of the next step
  std::optional<Error> refused;  // by step(): a gradient was not finite; the same on every rank

 private:
  enum class Call { kClip, kStep, kSkip };
  void announce(Call call, double max_norm = 0);
  GradientNorm clip(double max_norm);
  void step_and_end();
  void end_step();
};

// Stages 1 and 2: every rank has all weights.
std::unique_ptr<ShardedOptimizer::State> shards_of(Reducer& reducer, UpdateRule rule, ShardedOptimizerOptions options);

}  // namespace tutti
