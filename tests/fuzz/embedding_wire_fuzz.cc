// Rows of tables as other hosts send them: any bytes are rows, of which none is read beyond its end; and rows that were
// rounded once are not rounded again.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/fuzz/targets.h"
#include "tutti/embedding/wire.h"

namespace tutti::fuzz {
namespace {

template <class T>
void rows_of(WireFormat format, std::int64_t width, Input input) {
  const Wire wire = wire_of<T>(format);
  const std::size_t row_bytes = std::size_t(wire.row_units(width)) * size_of(wire.dtype);
  const auto rows = std::int64_t(input.size() / row_bytes);
  // Of exactly so many bytes, so that a sanitizer sees what is read beyond them.
  const std::size_t size = std::size_t(rows) * row_bytes;
  const std::unique_ptr<std::byte[]> bytes(new std::byte[size]);
  if (size > 0) std::memcpy(bytes.get(), input.data(), size);
  std::vector<T> values(std::size_t(rows * width)), again(values.size());
  decode(format, bytes.get(), rows, width, values.data());
  const std::unique_ptr<std::byte[]> written(new std::byte[size]);
  encode(format, values.data(), rows, width, written.get());
  decode(format, written.get(), rows, width, again.data());
  if (format == WireFormat::kI8) return;  // its scale is that of the largest number, which a peer need not have taken
  const auto same = [](T a, T b) { return a == b || (a != a && b != b); };
  promise(std::equal(values.begin(), values.end(), again.begin(), same), "what was rounded is not rounded again");
}

}  // namespace

void embedding_wire(Input input) {
  const auto how = take(input);
  const std::int64_t width = 1 + take(input) % 64;
  const WireFormat format = how % 2 ? WireFormat::kBF16 : WireFormat::kI8;
  how & 2 ? rows_of<float>(format, width, input) : rows_of<double>(format, width, input);
}

}  // namespace tutti::fuzz
