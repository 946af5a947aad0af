// What a rank announces of its sparse tensor: it can be, and is a sentence and a row again; or it is refused.
#include <cstring>

#include "tests/fuzz/targets.h"
#include "tutti/comm/sparse_facts.h"

namespace tutti::fuzz {

void sparse_facts(Input input) {
  SparseRow row{};
  const Input bytes = take(input, sizeof row);
  std::memcpy(row.data(), bytes.data(), bytes.size());
  const auto facts = parse_sparse_facts(row);
  if (!facts.ok()) return promise_sentence(facts.error());
  promise(facts->sizes.size() <= std::size_t(kMostSparseDimensions), "dimensions have their limit");
  promise(facts->entries >= 0 && facts->sparse_dimensions <= std::int64_t(facts->sizes.size()), "they can be");
  promise(to_string(*facts).find(" sparse dimension") != std::string::npos, "they are a sentence");
  const SparseRow written = to_row(*facts);
  const auto again = parse_sparse_facts(written);
  promise(again.ok() && again->is_like(*facts) && again->entries == facts->entries, "facts survive being announced");
}

}  // namespace tutti::fuzz
