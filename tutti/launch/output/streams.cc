#include "tutti/launch/output/streams.h"

#include <algorithm>
#include <optional>

#include "tutti/base/text.h"
#include "tutti/launch/layout.h"

namespace tutti {
namespace {

std::optional<Streams> streams_of(std::string_view digit) {
  const auto bits = parse_int(digit);
  if (digit.size() != 1 || !bits || *bits < 0 || *bits > 3) return {};
  return Streams{.output = (*bits & 1) != 0, .errors = (*bits & 2) != 0};
}

}  // namespace

bool StreamsByRank::any() const {
  return others_.any() ||
         std::any_of(named_.begin(), named_.end(), [](const auto& entry) { return entry.second.any(); });
}

Result<StreamsByRank> parse_streams(std::string_view text, const std::string& option) {
  if (const auto all = streams_of(text)) return StreamsByRank(*all);
  StreamsByRank streams;
  for (const std::string& part : split(text, ',')) {
    const auto colon = part.find(':');
    const auto rank = parse_int(std::string_view(part).substr(0, colon));
    const auto meant = colon == std::string::npos ? std::nullopt : streams_of(std::string_view(part).substr(colon + 1));
    if (!rank || *rank < 0 || *rank >= kMostRanksPerNode || !meant)
      return Error{.code = Code::kUsage,
                   .detail = option +
                             " needs 0 (none), 1 (stdout), 2 (stderr) or 3 (both), for all ranks or by local "
                             "rank such as 0:3,2:1, not '" +
                             std::string(text) + "'"};
    streams.set(int(*rank), *meant);
  }
  return streams;
}

}  // namespace tutti
