#pragma once
// The checks of one DataParallel for NaN and infinity (DataParallelOptions::finite_check).
#include <optional>
#include <span>

#include "tutti/parallel/data_parallel/options.h"
#include "tutti/parallel/data_parallel/reducer/parts.h"
#include "tutti/parallel/gradients/average_tiles.h"
#include "tutti/parallel/gradients/findings.h"

namespace tutti {

// One thread at a time. Only decide() waits for a GPU, once.
class FiniteChecks {
 public:
  FiniteChecks(const Group& group, FiniteCheck check) : group_(group), check_(check) {}
  bool checks_own() const { return check_ == FiniteCheck::kReport || check_ == FiniteCheck::kThrow; }
  bool checks_averages() const { return check_ == FiniteCheck::kInReduction; }
  bool is_on() const { return check_ != FiniteCheck::kOff; }
  bool throws() const { return check_ != FiniteCheck::kReport; }

  // This rank's gradient, before it is averaged.
  void check_own(std::size_t parameter, const at::Tensor& dense);
  // The averages of a bucket: this rank's part, since all ranks have the same.
  void check_averages(std::span<const Parameter> parameters, const Bucket& bucket);
  // All averages of a bucket: a hook may give each rank others.
  void check_averages_of_hook(std::span<const Parameter> parameters, const Bucket& bucket);
  // A tile that is not finite: which parameters, and on which rank.
  void note(std::span<const Parameter> parameters, const Bucket& bucket, const GradientRange& range,
            const AverageTile& tile);

  // Every rank calls: a barrier. Whether any rank has found something; the same on all ranks.
  bool decide(std::span<const Parameter> parameters, Give give);
  const std::optional<NonFiniteGradient>& found() const { return found_; }
  void forget() { found_.reset(); }

 private:
  int rank_of_kept_gradient(std::size_t index, const Parameter& parameter, Give give) const;

  Group group_;
  FiniteCheck check_;
  GradientFindings findings_;
  std::optional<NonFiniteGradient> found_;
};

}  // namespace tutti
