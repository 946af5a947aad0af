#include "tutti/data/tokens/splits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti {

std::array<SplitRange, 3> split_ranges(std::string_view split, std::int64_t count) {
  std::array<double, 3> shares{};
  const std::string text(split);
  const auto words = tutti::split(text, ',');
  TUTTI_REQUIRE(words.size() <= 3, "--split ", text, ": ", words.size(),
                " numbers, expected up to three: train, validation, test");
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto share = parse_double(trim(words[i]));
    TUTTI_REQUIRE(share && *share >= 0 && *share < 1e18, "--split ", text, ": \"", words[i],
                  "\", expected a number, 0 or more");
    shares[i] = *share;
  }
  const double sum = shares[0] + shares[1] + shares[2];
  TUTTI_REQUIRE(sum > 0, "--split ", text, ": all shares are 0");
  std::array<SplitRange, 3> ranges{};
  double before = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    // In the order of Megatron-LM's additions, so that the same bounds come out.
    const double after = before + shares[i] / sum;
    ranges[i] = {std::int64_t(std::nearbyint(before * double(count))),
                 std::int64_t(std::nearbyint(after * double(count)))};
    before = after;
  }
  for (SplitRange& range : ranges)
    range.end = std::min(range.end, count), range.begin = std::min(range.begin, range.end);
  return ranges;
}

BlendIndex blend(std::span<const double> weights, std::int64_t samples) {
  TUTTI_REQUIRE(!weights.empty() && weights.size() <= std::size_t(std::numeric_limits<std::int16_t>::max()),
                "blend: ", weights.size(), " datasets, expected 1 to 32767");
  for (const double weight : weights)
    TUTTI_REQUIRE(weight >= 0 && weight < 1e300, "blend: a weight of ", weight, ", expected 0 or more");
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  TUTTI_REQUIRE(sum > 0, "blend: all weights are 0");
  TUTTI_REQUIRE(samples >= 0, "blend: ", samples, " samples, expected 0 or more");
  std::vector<double> shares(weights.begin(), weights.end());
  for (double& share : shares) share /= sum;
  std::vector<std::int64_t> taken(weights.size());
  BlendIndex index{std::vector<std::int16_t>(std::size_t(samples)), std::vector<std::int64_t>(std::size_t(samples))};
  for (std::int64_t i = 0; i < samples; ++i) {
    const double wanted = std::max(double(i), 1.0);
    std::size_t most = 0;
    for (std::size_t d = 1; d < shares.size(); ++d)
      if (shares[d] * wanted - double(taken[d]) > shares[most] * wanted - double(taken[most])) most = d;
    index.dataset[std::size_t(i)] = std::int16_t(most);
    index.sample[std::size_t(i)] = taken[most]++;
  }
  return index;
}

}  // namespace tutti
