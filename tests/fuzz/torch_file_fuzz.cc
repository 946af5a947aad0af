// A file of PyTorch from a stranger: the directory of the zip archive, the pickle in it, and every tensor.
#include "tests/fuzz/targets.h"
#include "tutti/checkpoint/open.h"
#include "tutti/checkpoint/torch/torch_optimizer.h"
#include "tutti/checkpoint/torch/zip_directory.h"

namespace tutti::fuzz {

void torch_file(Input input) {
  const auto directory =
      read_zip_directory(input.size(), [&](std::uint64_t offset, std::span<std::byte> into) -> Status {
        promise(offset <= input.size() && into.size() <= input.size() - offset, "what is read is there");
        const auto bytes = std::as_bytes(input).subspan(offset, into.size());
        std::copy(bytes.begin(), bytes.end(), into.begin());
        return {};
      });
  if (directory.ok()) {
    for (const auto& [name, record] : *directory)
      promise(record.offset <= input.size() && record.bytes <= input.size() - record.offset,
              "a record lies in the file");
  } else {
    promise_sentence(directory.error());
  }
  const BytesFile file(input);
  const auto source = open_tensors(file.path());
  if (!source.ok()) return promise_sentence(source.error());
  for (const auto& [key, tensor] : (*source)->tensors()) {
    promise(tensor.bytes_here() <= input.size(), "no tensor is larger than its file");
    for (const TensorPart& part : tensor.parts) {
      std::vector<std::byte> values(part.box.elements() * tensor.element_bytes);
      const Status read = (*source)->read(key, part.box, values);
      if (!read.ok()) promise_sentence(read.error());  // a checksum that is wrong
    }
  }
  const TorchOptimizerOptions places{.optimizer = find_torch_optimizer(**source), .model = "model"};
  const auto optimizer = read_torch_optimizer(**source, places);
  if (!optimizer.ok()) return promise_sentence(optimizer.error());
  for (const auto& [key, old] : optimizer->tensors) promise((*source)->find(old), "what is named is there");
  for (const auto& [key, number] : optimizer->numbers) promise(number >= 0, "a number of steps");
}

}  // namespace tutti::fuzz
