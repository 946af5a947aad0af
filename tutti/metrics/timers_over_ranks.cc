#include "tutti/metrics/timers_over_ranks.h"

#include <nlohmann/json.hpp>

#include "tutti/comm/json_objects.h"

namespace tutti {

std::vector<std::vector<TimerReading>> timers_of_ranks(const Group& group, const std::vector<TimerReading>& mine) {
  auto json = nlohmann::json::array();
  for (const TimerReading& reading : mine) json.push_back({reading.name, reading.seconds, reading.count});
  std::vector<std::vector<TimerReading>> all;
  for (const auto& of_rank : all_gather_json(group, json)) {
    auto& readings = all.emplace_back();
    for (const auto& reading : of_rank) readings.push_back({reading.at(0), reading.at(1), reading.at(2)});
  }
  return all;
}

std::vector<TimerSpread> timers_over_ranks(const Group& group, const std::vector<TimerReading>& mine) {
  return spread(timers_of_ranks(group, mine));
}

}  // namespace tutti
