#pragma once
// The lookups of one table for a batch of samples, as their owner keeps them.
#include <cstdint>
#include <span>

namespace tutti {

// Sample s looks up indices[offsets[s]] .. indices[offsets[s + 1] - 1]; the rows are added up. A bag may be empty.
// offsets[0] is 0 and offsets.back() is indices.size(); with samples == 0 it holds the one 0.
struct LookupsView {
  std::span<const std::int64_t> offsets;  // samples + 1
  std::span<const std::int64_t> indices;
  std::int64_t samples() const { return offsets.empty() ? 0 : std::int64_t(offsets.size()) - 1; }
};

}  // namespace tutti
