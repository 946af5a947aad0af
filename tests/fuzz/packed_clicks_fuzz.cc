// A packed file of clicks: what its header says is in it, and every row that is handed out is in its table. The first
// two bytes say how many zeros follow the others.
#include <algorithm>
#include <vector>

#include "tests/fuzz/targets.h"
#include "tutti/data/clicks/packed.h"

namespace tutti::fuzz {

void packed_clicks(Input input) {
  const std::size_t low = take(input), zeros = low | std::size_t(take(input)) << 8;
  std::vector<std::uint8_t> content(input.size() + zeros);
  std::copy(input.begin(), input.end(), content.begin());

  const auto header = decode_packed_header(content, content.size());
  if (!header.ok()) {
    promise_sentence(header.error());
  } else {
    const PackedLayout layout(*header);
    promise(layout.file_bytes() == content.size(), "the file is as large as its header says");
    const auto bytes = encode(*header);
    const auto again = decode_packed_header(bytes, content.size());
    promise(again.ok() && again->rows == header->rows && again->day_begins == header->day_begins,
            "a header survives being written");
  }

  const BytesFile file(content);
  const auto source = open_packed_clicks({.path = file.path(), .split = ClickSplit::kAll, .batch_size = 2});
  if (!source.ok()) return promise_sentence(source.error());
  const auto& rows = (*source)->shape().rows;
  for (std::int64_t batch = 0; batch < std::min<std::int64_t>((*source)->batches(), 8); ++batch) {
    ClickBatch into;
    const Status read = (*source)->read(batch, BatchPart::whole((*source)->samples(batch), rows.size()), into);
    if (!read.ok()) {
      promise_sentence(read.error());
      continue;
    }
    for (std::size_t table = 0; table < rows.size(); ++table)
      for (const std::int64_t row : into.lookups[table].indices)
        promise(row >= 0 && row < rows[table], "a row is in its table");
  }
}

}  // namespace tutti::fuzz
