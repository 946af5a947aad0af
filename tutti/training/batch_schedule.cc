#include "tutti/training/batch_schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

void check_ramp_up(const BatchScheduleOptions::RampUp& ramp, std::int64_t global_batch) {
  TUTTI_REQUIRE(ramp.start >= 1 && ramp.increment >= 1 && ramp.samples >= 0, "batches: a ramp-up of ", ramp.start, " ",
                ramp.increment, " ", ramp.samples, ", expected a first batch, an increment and samples above 0");
  TUTTI_REQUIRE(ramp.start <= global_batch, "batches: the ramp-up begins with ", ramp.start,
                ", more than the global batch of ", global_batch);
  TUTTI_REQUIRE((global_batch - ramp.start) % ramp.increment == 0, "batches: the ramp-up cannot lead from ", ramp.start,
                " to ", global_batch, " in increments of ", ramp.increment, ": these do not divide ",
                global_batch - ramp.start);
}

void check_steps(std::span<const BatchScheduleOptions::Step> steps) {
  TUTTI_REQUIRE(steps.front().from_samples == 0, "batches: the steps begin at sample ", steps.front().from_samples,
                ", expected 0");
  for (std::size_t i = 0; i < steps.size(); ++i) {
    TUTTI_REQUIRE(steps[i].global_batch >= 1, "batches: a global batch of ", steps[i].global_batch,
                  ", expected 1 or more");
    TUTTI_REQUIRE(i == 0 || steps[i].from_samples > steps[i - 1].from_samples, "batches: the step at sample ",
                  steps[i].from_samples, " comes after that at ", steps[i - 1].from_samples,
                  ", expected ascending ones");
  }
}

}  // namespace

BatchSchedule::BatchSchedule(BatchScheduleOptions options)
    : options_(std::move(options)), unit_(std::int64_t(options_.micro_batch) * options_.replicas) {
  TUTTI_REQUIRE(options_.micro_batch >= 1 && options_.replicas >= 1, "batches: micro batch ", options_.micro_batch,
                " x ", options_.replicas, " replicas, expected 1 or more of each");
  TUTTI_REQUIRE(options_.steps.empty() || !options_.ramp_up,
                "batches: a ramp-up and steps of the batch size exclude one another");
  if (!options_.steps.empty()) {
    check_steps(options_.steps);
    for (const auto& step : options_.steps) as_run(step.global_batch);
    return;
  }
  TUTTI_REQUIRE(options_.global_batch >= 1, "batches: a global batch of ", options_.global_batch,
                ", expected 1 or more");
  as_run(options_.global_batch);
  if (!options_.ramp_up) return;
  check_ramp_up(*options_.ramp_up, options_.global_batch);
  for (std::int64_t batch = options_.ramp_up->start; batch < options_.global_batch;
       batch += options_.ramp_up->increment)
    as_run(batch);
}

std::int64_t BatchSchedule::as_run(std::int64_t global_batch) const {
  const std::int64_t down = global_batch / unit_ * unit_;
  TUTTI_REQUIRE(down > 0 && (down == global_batch || options_.decrease_if_needed), "batches: a global batch of ",
                global_batch, " is no multiple of micro batch ", options_.micro_batch, " x ", options_.replicas,
                " replicas (= ", unit_, "): choose ", down > 0 ? std::to_string(down) + " or " : "", down + unit_,
                down > 0 ? ", or let it be decreased" : "");
  TUTTI_REQUIRE(down / unit_ <= std::numeric_limits<int>::max(), "batches: a global batch of ", global_batch,
                " has more microbatches than can be counted");
  return down;
}

std::int64_t BatchSchedule::asked(std::int64_t consumed) const {
  if (!options_.steps.empty()) {
    const auto after = std::upper_bound(options_.steps.begin(), options_.steps.end(), consumed,
                                        [](std::int64_t at, const auto& step) { return at < step.from_samples; });
    return std::prev(after)->global_batch;
  }
  if (!options_.ramp_up || consumed >= options_.ramp_up->samples) return options_.global_batch;
  const auto& [start, increment, samples] = *options_.ramp_up;
  const std::int64_t increments = (options_.global_batch - start) / increment;
  if (increments == 0) return options_.global_batch;
  // Not in whole samples: 300000 over 63 increments is 4761.9 each.
  const double samples_each = double(samples) / double(increments);
  return std::min(start + std::int64_t(std::floor(double(consumed) / samples_each)) * increment, options_.global_batch);
}

std::int64_t BatchSchedule::global_batch(std::int64_t consumed_samples) const {
  TUTTI_REQUIRE(consumed_samples >= 0, "batches: ", consumed_samples, " samples consumed, expected 0 or more");
  return as_run(asked(consumed_samples));
}

int BatchSchedule::most_microbatches() const {
  std::int64_t most = options_.steps.empty() ? options_.global_batch : 0;
  for (const auto& step : options_.steps) most = std::max(most, step.global_batch);
  return int(as_run(most) / unit_);
}

std::vector<BatchScheduleOptions::Step> parse_batch_steps(std::string_view text, std::optional<int> sequence_length) {
  const auto count = [&](std::string_view word) -> std::int64_t {
    constexpr std::string_view kSuffixes = "KMBT";
    std::string_view digits = word;
    double factor = 1;
    if (const std::size_t at = digits.empty() ? digits.npos : kSuffixes.find(digits.back()); at != digits.npos)
      digits.remove_suffix(1), factor = std::pow(1000.0, double(at + 1));
    const auto value = parse_double(digits);
    TUTTI_REQUIRE(value && *value >= 0 && *value * factor < 9e18, "batches: \"", std::string(word), "\" in \"",
                  std::string(text), "\", expected a count such as 1536 or 250B");
    return std::int64_t(std::llround(*value * factor));
  };
  std::vector<BatchScheduleOptions::Step> steps;
  for (const std::string& word : split(std::string(text), ' ')) {
    if (word.empty()) continue;
    const std::size_t colon = word.find(':');
    TUTTI_REQUIRE(colon != word.npos, "batches: \"", word, "\" in \"", std::string(text),
                  "\", expected FROM:BATCH, as in \"0:768 250B:1536\"");
    const std::int64_t from = count(std::string_view(word).substr(0, colon));
    steps.push_back({from / sequence_length.value_or(1), count(std::string_view(word).substr(colon + 1))});
  }
  TUTTI_REQUIRE(!steps.empty(), "batches: no steps of the batch size in \"", std::string(text), "\"");
  check_steps(steps);
  return steps;
}

}  // namespace tutti
