#pragma once
// How good a model is on a source of batches, over all ranks.
#include <cstdint>
#include <functional>

#include "tutti/comm/group.h"
#include "tutti/models/dlrm/batches.h"
#include "tutti/models/dlrm/model.h"
#include "tutti/models/dlrm/printed_lines.h"

namespace tutti::dlrm {

struct Evaluation {
  TestScores scores;  // the best ones are left to the caller
  double loss = 0;    // the mean over all samples
};

// What a batch was like, for who prints lines: its number from 1, the losses of this rank, seconds.
using AfterBatch = std::function<void(std::int64_t batch, double loss_here, std::int64_t samples, double seconds)>;

// One pass over `batches`. `ranked`: also recall, AUC and so on, for which targets must be 0 or 1. Collective; throws
// Exception.
Evaluation evaluate(const Group& world, Model& model, BatchReader& batches, const LossOptions& loss, bool ranked,
                    const AfterBatch& after = {});

}  // namespace tutti::dlrm
