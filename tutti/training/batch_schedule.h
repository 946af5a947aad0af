#pragma once
// How large the global batch of a step is, and of how many microbatches it consists: as Megatron-LM counts them
// (megatron/core/num_microbatches_calculator.py). Everything hangs on the samples consumed so far, so a run resumes
// from that one number. Pure arithmetic; mistakes throw Exception.
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tutti {

struct BatchScheduleOptions {
  int micro_batch = 1;            // samples that a replica's forward takes at once
  int replicas = 1;               // data parallel size
  std::int64_t global_batch = 1;  // samples of a step, over all replicas; of the last steps, where it grows
  // Where micro_batch x replicas does not divide a global batch: rounds it down instead of refusing.
  bool decrease_if_needed = false;
  // --rampup-batch-size START INCREMENT SAMPLES: begins with START, grows by INCREMENT as often as leads to
  // global_batch, evenly over the first SAMPLES samples.
  struct RampUp {
    std::int64_t start, increment, samples;
  };
  std::optional<RampUp> ramp_up;
  // --step-batch-size-schedule: from so many samples on, such a global batch; begins at 0, ascending. Instead of
  // global_batch and ramp_up.
  struct Step {
    std::int64_t from_samples, global_batch;
    bool operator==(const Step&) const = default;
  };
  std::vector<Step> steps;
};

class BatchSchedule {
 public:
  explicit BatchSchedule(BatchScheduleOptions options);

  // Of the step that begins after so many samples. With decrease_if_needed: what is really run.
  std::int64_t global_batch(std::int64_t consumed_samples) const;
  int microbatches(std::int64_t consumed_samples) const { return int(global_batch(consumed_samples) / unit_); }
  // Samples of one microbatch on all replicas.
  std::int64_t unit() const { return unit_; }
  // The largest of all: for who allocates.
  int most_microbatches() const;

 private:
  std::int64_t as_run(std::int64_t global_batch) const;
  std::int64_t asked(std::int64_t consumed_samples) const;

  BatchScheduleOptions options_;
  std::int64_t unit_;
};

// "0:768 250B:1536": where the batch changes, in samples, or in tokens if `sequence_length` is given; K, M, B and T are
// powers of 1000.
std::vector<BatchScheduleOptions::Step> parse_batch_steps(std::string_view text,
                                                          std::optional<int> sequence_length = {});

}  // namespace tutti
