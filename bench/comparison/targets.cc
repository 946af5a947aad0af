// Measured once, on two cores, by loops with nothing around them; a ratio against a peer in the same minute carries
// over to another machine better than any time would, but on one with more cores, other caches or another Open MPI it
// is a mark to compare with, and not a promise.
#include "bench/comparison/targets.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::bench {
namespace {

constexpr std::size_t operator""_K(unsigned long long n) { return n << 10; }
constexpr std::size_t operator""_M(unsigned long long n) { return n << 20; }

const std::vector<std::string> kMpi = {"mpi"}, kGloo = {"gloo"}, kBare = {"bare"}, kIperf3 = {"iperf3"},
                               kBetter = {"mpi", "gloo"};

using Ratios = std::vector<std::pair<std::size_t, double>>;  // by bytes

std::vector<Target> make_targets() {
  std::vector<Target> all;
  const auto add = [&](const Setting& setting, const char* op, const Ratios& ratios,
                       const std::vector<std::string>& rivals) {
    for (const auto& [bytes, wanted] : ratios) all.push_back({setting, {op, bytes}, rivals, wanted});
  };
  const Setting two{.ranks = 2};
  add(two, "all_reduce", {{8, 1.8}}, kMpi);
  add(two, "barrier", {{0, 1.8}}, kMpi);
  add(two, "all_reduce", {{4_K, 4}, {32_K, 7}, {256_K, 6}, {2_M, 4.5}, {16_M, 3.4}, {64_M, 4.4}}, kMpi);
  add(two, "reduce_scatter", {{2_M, 5}, {16_M, 5}, {64_M, 5}}, kMpi);
  add(two, "all_gather", {{2_M, 1.4}, {16_M, 1.4}, {64_M, 1.4}}, kMpi);
  add(two, "all_to_all", {{2_M, 1.4}, {16_M, 1.4}, {64_M, 1.4}}, kMpi);
  add(two, "broadcast", {{2_M, 2.7}, {16_M, 2.7}, {64_M, 2.7}}, kMpi);
  // Of what the two cores can do: 90 %.
  add(two, "all_reduce", {{16_M, 0.9}, {64_M, 0.9}}, kBare);
  add(two, "all_reduce", {{8, 100}, {4_K, 100}, {32_K, 100}, {256_K, 15}, {2_M, 15}, {16_M, 15}, {64_M, 15}}, kGloo);
  add({.ranks = 2, .rewrite = true}, "all_reduce",
      {{4_K, 3}, {32_K, 4.5}, {256_K, 4.8}, {2_M, 3.3}, {16_M, 3.2}, {64_M, 3.7}}, kMpi);
  add({.ranks = 2, .private_memory = true}, "all_reduce",
      {{4_K, 2}, {32_K, 2.4}, {256_K, 2}, {2_M, 1.5}, {16_M, 1.35}, {64_M, 1.75}}, kMpi);
  // More ranks than cores; and no call of 64 KB or less may take long.
  constexpr double kMostP99 = 5000;
  for (const auto& [ranks, ratios] : {std::pair<int, Ratios>(4, {{8, 2.5}, {4_K, 5}, {256_K, 8}, {16_M, 5}}),
                                      {8, {{8, 3.5}, {4_K, 7}, {256_K, 7}, {16_M, 6}}}}) {
    add({.ranks = ranks}, "all_reduce", ratios, kMpi);
    add({.ranks = ranks}, "all_reduce", {{8, kMostP99}, {4_K, kMostP99}, {64_K, kMostP99}}, {});
  }
  // Two hosts, one and two ranks on each: as they come, and the peers given cubic, which tutti asks for by itself.
  for (const int ranks : {2, 4}) {
    const Setting plain{.ranks = ranks, .two_hosts = true}, cubic{.ranks = ranks, .two_hosts = true, .cubic = true};
    add(plain, "all_reduce", {{8, 1.6}}, kMpi);
    add(plain, "all_reduce", {{8, 25}}, kGloo);
    add(plain, "all_reduce", {{16_M, 3}}, kBetter);
    if (ranks == 2) add(plain, "broadcast", {{64_M, 1.5}}, kIperf3);
    add(cubic, "all_reduce", {{16_M, 1.2}}, kBetter);
  }
  return all;
}

// What a loop with nothing around it, or else the memory, would reach against the best of the rivals. Bytes that fit
// into a cache move faster than memory gives them, so that this bounds long vectors only.
Spread floor_ratio(const Target& target, const Turns& turns, double rival_us) {
  constexpr std::size_t kBeyondCaches = 32_M;
  for (const char* const key : {"bare", "bare_wire"}) {
    if (target.rivals == std::vector<std::string>{key}) return {};
    if (turns.has(key, target.item)) return turns.ratio_to_best(target.rivals, key, target.item);
  }
  const Spread limit = turns.limit_us(kOurs, target.item);
  if (target.setting.two_hosts || target.item.bytes < kBeyondCaches || limit.count == 0) return {};
  return {rival_us / limit.median, rival_us / limit.most, rival_us / limit.least, limit.count};
}

}  // namespace

std::string to_string(const Setting& s) {
  std::string words = fmt::format("{} ranks", s.ranks);
  if (s.two_hosts) words += " on two hosts";
  words += s.private_memory ? ", private memory" : ", heap";
  if (s.rewrite) words += " rewritten before every call";
  if (s.cubic) words += ", the peers given cubic";
  return words;
}

const std::vector<Target>& targets() {
  static const std::vector<Target> all = make_targets();
  return all;
}

std::optional<double> target_for(const Setting& setting, const Item& item, const std::string& rival) {
  for (const Target& target : targets())
    if (target.setting == setting && target.item == item && target.rivals == std::vector<std::string>{rival})
      return target.wanted;
  return std::nullopt;
}

Judgement judge(const Target& target, const Turns& turns) {
  using Verdict = Judgement::Verdict;
  Judgement result;
  if (target.rivals.empty()) {
    result.ours_us = turns.p99_us(kOurs, target.item);
    if (result.ours_us.count > 0)
      result.verdict = result.ours_us.median <= target.wanted ? Verdict::kMet : Verdict::kNotMet;
    return result;
  }
  result.ours_us = turns.us(kOurs, target.item);
  for (const std::string& rival : target.rivals) {
    const Spread us = turns.us(rival, target.item);
    // The better of several is known only if all are.
    if (us.count == 0) return result;
    if (result.rival_us.count == 0 || us.median < result.rival_us.median) result.rival_us = us;
    const double least = turns.us_min(rival, target.item) / turns.us_min(kOurs, target.item);
    if (result.ratio_of_least == 0 || least < result.ratio_of_least) result.ratio_of_least = least;
  }
  result.ratio = turns.ratio_to_best(target.rivals, kOurs, target.item);
  if (result.ratio.count == 0) return result;
  result.floor_ratio = floor_ratio(target, turns, result.rival_us.median);
  const bool bounded = result.floor_ratio.count > 0 && result.floor_ratio.median < target.wanted;
  result.verdict = result.ratio.median >= target.wanted ? Verdict::kMet
                   : bounded                            ? Verdict::kBeyondFloor
                                                        : Verdict::kNotMet;
  return result;
}

Task Section::task(const Method& method) const {
  Task task{.ranks = setting.ranks,
            .method = method,
            .private_memory = setting.private_memory,
            .two_hosts = setting.two_hosts,
            .congestion = setting.cubic ? "cubic" : ""};
  task.method.rewrite = setting.rewrite;
  for (const Target& target : targets)
    if (std::find(task.items.begin(), task.items.end(), target.item) == task.items.end())
      task.items.push_back(target.item);
  return task;
}

std::vector<Section> sections(const std::vector<Target>& all) {
  std::vector<Section> result;
  for (const Target& target : all) {
    auto at = std::find_if(result.begin(), result.end(), [&](const Section& s) { return s.setting == target.setting; });
    if (at == result.end()) at = result.insert(result.end(), Section{.setting = target.setting});
    at->targets.push_back(target);
  }
  return result;
}

}  // namespace tutti::bench
