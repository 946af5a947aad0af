// The manifest of a checkpoint, as it is and with the digest that it should have: what is taken is consistent, and
// comes back the same when it is written and read again.
#include "tests/fuzz/targets.h"
#include "tutti/checkpoint/format/manifest.h"
#include "tutti/checkpoint/io/stored_bytes.h"

namespace tutti::fuzz {
namespace {

void look_at(const std::string& text) {
  const auto manifest = parse_manifest(text);
  if (!manifest.ok()) return promise_sentence(manifest.error());
  for (const auto& [key, tensor] : manifest->tensors) {
    const TensorBox whole = TensorBox::whole(tensor.shape);
    std::uint64_t elements = 0;
    for (const StoredBox& stored : tensor.boxes) {
      elements += stored.box.elements();
      const std::uint64_t bytes = stored.box.elements() * size_of(tensor.dtype);
      promise(stored.file < manifest->files.size(), "a box lies in a file that there is");
      promise(stored.offset + bytes <= manifest->files[stored.file].bytes, "a box lies in its file");
      promise(stored.crc32c.size() <= text.size(), "digests were in the text");
      if (stored.box.elements() > 1000) continue;
      const Status walked = for_each_run(stored.box, whole, false, [&](auto in_stored, auto in_whole, auto count) {
        promise(in_stored + count <= stored.box.elements(), "a run is inside of its box");
        promise(in_whole + count <= whole.elements(), "a run is inside of the tensor");
        return Status();
      });
      promise(walked.ok(), "runs are walked");
    }
    promise(elements == whole.elements(), "boxes cover their tensor");
  }
  const auto again = compose_manifest(*manifest);
  promise(again.ok(), "what was read can be written");
  const auto back = parse_manifest(*again);
  promise(back.ok() && *compose_manifest(*back) == *again, "what was written is read alike");
}

}  // namespace

void manifest(Input input) {
  const std::string text = text_of(input);
  look_at(text);
  look_at(detail::with_manifest_digest(text));
}

}  // namespace tutti::fuzz
