#include "tutti/comm/sparse_facts.h"

#include <algorithm>
#include <limits>

namespace tutti {
namespace {

enum SparsePlace { kEntries, kType, kOp, kSparse, kDimensions, kSizes };

Error no_facts(const std::string& why) {
  return Error{.code = Code::kCorrupt,
               .detail = "announced a sparse tensor that cannot be: " + why,
               .hint = "do all ranks run the same version of tutti?"};
}

template <class Value, std::size_t kCount>
const Value* known(const Value (&all)[kCount], std::int64_t number) {
  const auto found = std::find_if(std::begin(all), std::end(all), [&](Value v) { return std::int64_t(v) == number; });
  return found == std::end(all) ? nullptr : found;
}

// How many indices there are, or the largest number where that is more.
std::int64_t places(std::span<const std::int64_t> sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes)
    if (__builtin_mul_overflow(product, size, &product)) product = std::numeric_limits<std::int64_t>::max();
  return std::find(sizes.begin(), sizes.end(), 0) == sizes.end() ? product : 0;
}

}  // namespace

bool SparseFacts::is_like(const SparseFacts& other) const {
  return dtype == other.dtype && op == other.op && std::ranges::equal(sizes, other.sizes);
}

SparseRow to_row(const SparseFacts& facts) {
  SparseRow row{};
  row[kEntries] = facts.entries;
  row[kType] = std::int64_t(facts.dtype);
  row[kOp] = std::int64_t(facts.op);
  row[kSparse] = facts.sparse_dimensions;
  row[kDimensions] = std::int64_t(facts.sizes.size());
  std::copy(facts.sizes.begin(), facts.sizes.end(), row.begin() + kSizes);
  return row;
}

Result<SparseFacts> parse_sparse_facts(std::span<const std::int64_t, kSparseFacts> row) {
  const DType* const dtype = known(kDTypes, row[kType]);
  if (!dtype) return no_facts(detail::words("there is no type ", row[kType]));
  const ReduceOp* const op = known(kReduceOps, row[kOp]);
  if (!op) return no_facts(detail::words("there is no op ", row[kOp]));
  if (row[kDimensions] < 0 || row[kDimensions] > kMostSparseDimensions)
    return no_facts(detail::words("it has ", row[kDimensions], " dimensions"));
  if (row[kSparse] < 0 || row[kSparse] > row[kDimensions])
    return no_facts(detail::words(row[kSparse], " of its ", row[kDimensions], " dimensions are sparse"));
  const auto sizes = row.subspan(kSizes, std::size_t(row[kDimensions]));
  for (const std::int64_t size : sizes)
    if (size < 0) return no_facts(detail::words("one of its sizes is ", size));
  if (row[kEntries] < 0 || row[kEntries] > places(sizes.first(std::size_t(row[kSparse]))))
    return no_facts(detail::words("it has ", row[kEntries], " entries in ",
                                  places(sizes.first(std::size_t(row[kSparse]))), " places"));
  return SparseFacts{
      .entries = row[kEntries], .dtype = *dtype, .op = *op, .sparse_dimensions = row[kSparse], .sizes = sizes};
}

std::string to_string(const SparseFacts& facts) {
  std::string text = std::string(name(facts.dtype)) + "[";
  for (std::size_t i = 0; i < facts.sizes.size(); ++i) text += (i ? ", " : "") + std::to_string(facts.sizes[i]);
  return text + detail::words("] with ", facts.sparse_dimensions, " sparse dimension",
                              facts.sparse_dimensions == 1 ? "" : "s", " to ", name(facts.op));
}

}  // namespace tutti
