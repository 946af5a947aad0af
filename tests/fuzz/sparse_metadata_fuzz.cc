// What a rank announces of its sparse tensor: it can be, and is a sentence and a row again; or it is refused.
#include <cstring>

#include "tests/fuzz/targets.h"
#include "tutti/comm/sparse_metadata.h"

namespace tutti::fuzz {

void sparse_metadata(Input input) {
  comm::SparseRow row{};
  const Input bytes = take(input, sizeof row);
  if (!bytes.empty()) std::memcpy(row.data(), bytes.data(), bytes.size());
  const auto metadata = comm::parse_sparse_metadata(row);
  if (!metadata.ok()) return promise_sentence(metadata.error());
  promise(metadata->sizes.size() <= std::size_t(comm::kMostSparseDimensions), "dimensions have their limit");
  promise(metadata->entries >= 0 && metadata->sparse_dimensions <= std::int64_t(metadata->sizes.size()), "they can be");
  promise(to_string(*metadata).find(" sparse dimension") != std::string::npos, "they are a sentence");
  const comm::SparseRow written = to_row(*metadata);
  const auto again = comm::parse_sparse_metadata(written);
  promise(again.ok() && again->is_like(*metadata) && again->entries == metadata->entries,
          "metadata survive being announced");
}

}  // namespace tutti::fuzz
