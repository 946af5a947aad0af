#include "tutti/comm/sparse_metadata.h"

#include <algorithm>
#include <limits>

namespace tutti::comm {
namespace {

enum SparsePlace { kEntries, kType, kOp, kSparse, kDimensions, kSizes };

Error unusable(const std::string& why) {
  return Error{.code = Code::kCorrupt,
               .detail = "announced an invalid sparse tensor: " + why,
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

bool SparseMetadata::is_like(const SparseMetadata& other) const {
  return dtype == other.dtype && op == other.op && std::ranges::equal(sizes, other.sizes);
}

SparseRow to_row(const SparseMetadata& metadata) {
  SparseRow row{};
  row[kEntries] = metadata.entries;
  row[kType] = std::int64_t(metadata.dtype);
  row[kOp] = std::int64_t(metadata.op);
  row[kSparse] = metadata.sparse_dimensions;
  row[kDimensions] = std::int64_t(metadata.sizes.size());
  std::copy(metadata.sizes.begin(), metadata.sizes.end(), row.begin() + kSizes);
  return row;
}

Result<SparseMetadata> parse_sparse_metadata(std::span<const std::int64_t, kSparseMetadata> row) {
  const DType* const dtype = known(kDTypes, row[kType]);
  if (!dtype) return unusable(detail::words("there is no type ", row[kType]));
  const ReduceOp* const op = known(kReduceOps, row[kOp]);
  if (!op) return unusable(detail::words("there is no op ", row[kOp]));
  if (row[kDimensions] < 0 || row[kDimensions] > kMostSparseDimensions)
    return unusable(detail::words("it has ", row[kDimensions], " dimensions"));
  if (row[kSparse] < 0 || row[kSparse] > row[kDimensions])
    return unusable(detail::words(row[kSparse], " of its ", row[kDimensions], " dimensions are sparse"));
  const auto sizes = row.subspan(kSizes, std::size_t(row[kDimensions]));
  for (const std::int64_t size : sizes)
    if (size < 0) return unusable(detail::words("one of its sizes is ", size));
  if (row[kEntries] < 0 || row[kEntries] > places(sizes.first(std::size_t(row[kSparse]))))
    return unusable(detail::words("it has ", row[kEntries], " entries in ",
                                  places(sizes.first(std::size_t(row[kSparse]))), " places"));
  return SparseMetadata{
      .entries = row[kEntries], .dtype = *dtype, .op = *op, .sparse_dimensions = row[kSparse], .sizes = sizes};
}

std::string to_string(const SparseMetadata& metadata) {
  std::string text = std::string(name(metadata.dtype)) + "[";
  for (std::size_t i = 0; i < metadata.sizes.size(); ++i) text += (i ? ", " : "") + std::to_string(metadata.sizes[i]);
  return text + detail::words("] with ", metadata.sparse_dimensions, " sparse dimension",
                              metadata.sparse_dimensions == 1 ? "" : "s", " to ", name(metadata.op));
}

}  // namespace tutti::comm
