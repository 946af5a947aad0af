#pragma once
// What sharded optimizers have to ask all ranks.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/parallel/gradients/averages.h"
#include "tutti/parallel/gradients/clip.h"
#include "tutti/parallel/optim/state_part.h"

namespace tutti {

// The norm of all averages, the same on every rank; over the ranks of `model`, if there is one. Where it is not finite
// all of `group` name the first parameter, and of it the first rank, that any of them has seen. Every rank calls.
GradientNorm norm_over_ranks(const Group& group, const Group& model, const AverageFacts& facts,
                             const std::function<const std::string&(std::int64_t shard)>& name);

// The sentence about the first gradient that is not finite, as above; empty: all that anybody has seen are. A meeting.
std::string non_finite_over_ranks(const Group& group, const Group& model, const AverageFacts& facts,
                                  const std::function<const std::string&(std::int64_t shard)>& name);

// Every parameter's state as a whole, out of what the ranks have of it. All give parts of the same tensors in the same
// order, empty ones included; a part that starts in the same place on every rank is a replica.
std::vector<StatePart> gather_state(const Group& group, std::span<const StatePart> own);

}  // namespace tutti
