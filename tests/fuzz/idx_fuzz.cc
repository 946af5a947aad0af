// An IDX file, compressed or not: it has as many values as its shape says, and memory grows with the file alone.
#include "tests/fuzz/targets.h"
#include "tutti/data/idx.h"

namespace tutti::fuzz {

void idx(Input input) {
  const BytesFile bytes(input);
  const auto array = read_idx(bytes.path());
  if (!array.ok()) return promise_sentence(array.error());
  std::size_t values = 1;
  for (const std::size_t extent : array->shape) values *= extent;
  promise(array->values.size() == values, "there are as many values as the shape says");
}

}  // namespace tutti::fuzz
