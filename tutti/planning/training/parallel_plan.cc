#include "tutti/planning/training/parallel_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tutti/base/text.h"

namespace tutti {
namespace {

Error wrong(std::string detail, std::string hint = {}) {
  return Error{.code = Code::kUsage, .detail = std::move(detail), .hint = std::move(hint)};
}

const std::vector<std::string>& keys() {
  static const std::vector<std::string> keys = {"tp",   "sp", "cp",  "pp",        "schedule", "chunks", "first",
                                                "last", "dp", "mbs", "recompute", "zero",     "overlap"};
  return keys;
}

Result<int> number(const std::string& key, const std::string& value, int least, int most) {
  const auto parsed = parse_int(value);
  if (parsed && *parsed >= least && *parsed <= most) return int(*parsed);
  return wrong(fmt::format("plan: {} needs a whole number from {} to {}, not '{}'", key, least, most, value));
}

Status set_recompute(ParallelPlan& plan, const std::string& value) {
  plan.recomputed_layers = 0;
  if (value == "none") {
    plan.recompute = Recomputation::kNone;
  } else if (value == "selective") {
    plan.recompute = Recomputation::kSelective;
  } else if (value == "full") {
    plan.recompute = Recomputation::kFull;
  } else if (const auto layers = parse_int(value); layers && *layers > 0 && *layers < 100000) {
    plan.recompute = Recomputation::kFull;
    plan.recomputed_layers = int(*layers);
  } else {
    return wrong(fmt::format("plan: recompute needs none, selective, full or a number of layers, not '{}'", value));
  }
  return {};
}

constexpr int kMost = 1 << 20;

Status set_end(std::optional<int>& layers, const std::string& key, const std::string& value) {
  layers.reset();
  if (value != "even") layers = TUTTI_TRY(number(key, value, 0, kMost));
  return {};
}

Status set(ParallelPlan& plan, const std::string& key, const std::string& value) {
  const auto whole = [&](int& target) -> Status {
    target = TUTTI_TRY(number(key, value, 1, kMost));
    return {};
  };
  if (key == "tp") return whole(plan.tensor);
  if (key == "cp") return whole(plan.context);
  if (key == "pp") return whole(plan.pipeline);
  if (key == "dp") return whole(plan.data);
  if (key == "mbs") return whole(plan.micro_batch);
  if (key == "chunks") return whole(plan.chunks);
  if (key == "first") return set_end(plan.ends.first, key, value);
  if (key == "last") return set_end(plan.ends.last, key, value);
  if (key == "recompute") return set_recompute(plan, value);
  if (key == "zero") {
    plan.zero = ZeroStage(TUTTI_TRY(number(key, value, 0, 3)));
    return {};
  }
  if (key == "schedule") {
    std::vector<std::string> names;
    for (const ScheduleKind kind : kScheduleKinds) names.emplace_back(name(kind));
    const auto kind = schedule_kind(value);
    if (!kind)
      return wrong("plan: there is no schedule '" + value + "'",
                   did_you_mean(nearest(value, names), "expected one of " + join(names, ", ")));
    plan.schedule = *kind;
    return {};
  }
  const bool given = value.empty() || value == "1";
  if (!given && value != "0") return wrong(fmt::format("plan: {} needs 0 or 1, not '{}'", key, value));
  (key == "sp" ? plan.sequence_parallel : plan.overlap_gradients) = given;
  return {};
}

}  // namespace

const std::vector<std::string>& parallel_plan_keys() { return keys(); }

std::string to_string(const ParallelPlan& plan) {
  std::vector<std::string> parts;
  const auto axis = [&](const char* name, int size) {
    if (size > 1) parts.push_back(fmt::format("{}={}", name, size));
  };
  axis("tp", plan.tensor);
  if (plan.sequence_parallel) parts.emplace_back("sp");
  axis("cp", plan.context);
  axis("pp", plan.pipeline);
  if (plan.schedule != ScheduleKind::kOneForwardOneBackward)
    parts.push_back(fmt::format("schedule={}", name(plan.schedule)));
  axis("chunks", plan.chunks);
  if (plan.ends.first) parts.push_back(fmt::format("first={}", *plan.ends.first));
  if (plan.ends.last) parts.push_back(fmt::format("last={}", *plan.ends.last));
  axis("dp", plan.data);
  parts.push_back(fmt::format("mbs={}", plan.micro_batch));
  if (plan.zero != ZeroStage::kNone) parts.push_back(fmt::format("zero={}", int(plan.zero)));
  if (plan.recompute == Recomputation::kSelective) parts.emplace_back("recompute=selective");
  if (plan.recompute == Recomputation::kFull)
    parts.push_back(plan.recomputed_layers == 0 ? "recompute=full"
                                                : fmt::format("recompute={}", plan.recomputed_layers));
  if (plan.overlap_gradients) parts.emplace_back("overlap");
  return join(parts, ",");
}

Status set_in_plan(ParallelPlan& plan, std::string_view text) {
  const std::size_t at = text.find('=');
  const std::string key(trim(text.substr(0, at)));
  const std::string value(at == std::string_view::npos ? std::string_view() : trim(text.substr(at + 1)));
  if (std::find(keys().begin(), keys().end(), key) == keys().end())
    return wrong(fmt::format("plan: there is no axis '{}'", key),
                 did_you_mean(nearest(key, keys()), "expected one of " + join(keys(), ", ")));
  return set(plan, key, value);
}

Status set_in_plan(ParallelPlan& plan, const std::vector<std::string>& parts) {
  std::vector<std::string> given;
  for (const std::string& part : parts) {
    TUTTI_TRY(set_in_plan(plan, std::string_view(part)));
    given.emplace_back(trim(std::string_view(part).substr(0, part.find('='))));
    if (std::find(given.begin(), given.end() - 1, given.back()) != given.end() - 1)
      return wrong(fmt::format("plan: {} is given twice in {}", given.back(), join(parts, ",")));
  }
  return {};
}

Result<ParallelPlan> parse_parallel_plan(std::string_view text) {
  std::vector<std::string> parts;
  for (const std::string& part : split(text, ','))
    if (!trim(part).empty()) parts.push_back(part);
  ParallelPlan plan;
  TUTTI_TRY(set_in_plan(plan, parts));
  return plan;
}

int axes_of(const ParallelPlan& plan) {
  return int(plan.tensor > 1) + int(plan.sequence_parallel) + int(plan.context > 1) + int(plan.pipeline > 1) +
         int(plan.chunks > 1) + int(plan.ends.first.has_value()) + int(plan.ends.last.has_value()) +
         int(plan.data > 1) + int(plan.schedule != ScheduleKind::kOneForwardOneBackward) + int(plan.zero) +
         int(plan.recompute != Recomputation::kNone) + int(plan.recomputed_layers > 0) + int(plan.overlap_gradients);
}

}  // namespace tutti
