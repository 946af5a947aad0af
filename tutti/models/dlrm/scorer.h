#pragma once
// A saved model that answers requests, in one process and without a group.
//
//   dlrm::Scorer scorer("runs/a");
//   std::vector<double> p = scorer.score(requests);
//
// One thread at a time. Throws Exception.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/models/dlrm/architecture.h"

namespace tutti::dlrm {

class Model;

struct ScoringRequest {
  std::vector<float> dense;                     // as the model was trained on: of Criteo's counts log(x + 1)
  std::vector<std::vector<std::int64_t>> rows;  // by categorical feature, those to be looked up
};

struct ScorerOptions {
  int mlp_bits = 32;    // 8, 16, 32
  int table_bits = 32;  // 4, 8, 32; fewer take as much less memory (packed_table.h), but with --weighted-pooling
};

class Scorer {
 public:
  // `folder`: what --save-model was given.
  explicit Scorer(const std::string& folder, const ScorerOptions& options = {});
  ~Scorer();

  const Architecture& architecture() const;
  // The probability of a click for each. kInvalidArgument: a request with too few or too many features, or a row that
  // its table does not have.
  std::vector<double> score(std::span<const ScoringRequest> requests);

 private:
  std::unique_ptr<Model> model_;
};

}  // namespace tutti::dlrm
