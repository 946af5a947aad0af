// A safetensors file of a stranger: what is taken means one thing only, and all of it can be read.
#include "tests/fuzz/targets.h"
#include "tutti/checkpoint/format/safetensors.h"

namespace tutti::fuzz {

void safetensors(Input input) {
  const BytesFile bytes(input);
  const auto file = SafetensorsFile::open(bytes.path());
  if (!file.ok()) return promise_sentence(file.error());
  std::uint64_t end = 0;
  for (const SafetensorsEntry& entry : file->entries()) {
    promise(entry.begin == end && entry.end >= entry.begin, "tensors lie one after another");
    end = entry.end;
    promise(file->find(entry.name) == &entry, "a tensor is found by its name");
    std::vector<std::byte> values(entry.bytes());
    const Status read = file->read(entry, values);
    if (!read.ok()) promise_sentence(read.error());  // a checksum that is wrong
  }
  promise(end <= input.size(), "tensors lie in the file");
}

}  // namespace tutti::fuzz
