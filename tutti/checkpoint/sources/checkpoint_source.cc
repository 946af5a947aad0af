#include "tutti/base/log.h"
#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/sources/sources.h"

namespace tutti {
namespace {

// One saved box through the stream of its tensor.
class SavedBoxBytes : public PackedBytes {
 public:
  SavedBoxBytes(std::unique_ptr<TensorStream> stream, TensorBox box, std::uint64_t element)
      : stream_(std::move(stream)), box_(std::move(box)), element_(element) {}
  Status read(std::uint64_t begin, std::span<std::byte> into) override {
    return for_each_span(begin / element_, into.size() / element_, [&](const TensorBox& part, std::uint64_t at) {
      return stream_->read(part, into.data() + at * element_);
    });
  }

 private:
  // Elements [first, first + count) of the packed box, as boxes: the longest that begin where the last one ended.
  template <class Do>
  Status for_each_span(std::uint64_t first, std::uint64_t count, const Do& act) const {
    const std::size_t dimensions = box_.extent.size();
    for (std::uint64_t done = 0; done < count;) {
      TensorBox part{TensorShape(dimensions), TensorShape(dimensions, 1)};
      std::uint64_t place = first + done, within = 1;
      for (std::size_t d = dimensions; d > 0; --d) {
        part.begin[d - 1] = box_.begin[d - 1] + place % box_.extent[d - 1];
        place /= box_.extent[d - 1];
      }
      for (std::size_t d = dimensions; d > 0; --d) {
        const std::uint64_t before = part.begin[d - 1] - box_.begin[d - 1];
        part.extent[d - 1] = std::min(box_.extent[d - 1] - before, (count - done) / within);
        if (part.extent[d - 1] < box_.extent[d - 1]) break;
        within *= part.extent[d - 1];
      }
      TUTTI_TRY(act(part, done));
      done += part.elements();
    }
    return {};
  }

  const std::unique_ptr<TensorStream> stream_;
  const TensorBox box_;
  const std::uint64_t element_;
};

class CheckpointSource : public TensorSource {
 public:
  explicit CheckpointSource(CheckpointReader saved) : saved_(std::move(saved)) {
    path_ = saved_.folder();
    format_ = "Tutti checkpoint";
    const Manifest& manifest = saved_.manifest();
    for (const auto& [key, stored] : manifest.tensors) {
      SourceTensor tensor{safetensors_name(stored.dtype), size_of(stored.dtype), stored.shape, {}};
      for (const StoredBox& box : stored.boxes) tensor.parts.push_back({box.box, manifest.files[box.file].name});
      tensors_.emplace(key, std::move(tensor));
    }
    const CheckpointFacts& facts = manifest.facts;
    facts_ = facts;
    about_.members = {ValueTree::leaf("step", facts.step), ValueTree::dict("values", facts.values),
                      ValueTree::dict("data", facts.data), ValueTree::dict("layout", facts.layout),
                      ValueTree::dict("versions", facts.versions)};
  }

  Result<std::unique_ptr<TensorStream>> stream(const TensorKey& key) const override {
    TUTTI_TRY(look_up(key));
    return saved_.stream(key);
  }

  Result<std::unique_ptr<PackedBytes>> open_part(const TensorKey& key, std::size_t part) const override {
    const SourceTensor* const tensor = TUTTI_TRY(look_up(key));
    return std::unique_ptr<PackedBytes>(std::make_unique<SavedBoxBytes>(
        TUTTI_TRY(saved_.stream(key)), tensor->parts.at(part).box, tensor->element_bytes));
  }

 private:
  const CheckpointReader saved_;
};

}  // namespace

Result<std::unique_ptr<TensorSource>> open_checkpoint(const std::string& path) {
  auto saved = TUTTI_TRY(CheckpointReader::open(path, VerifyLevel::kFiles));
  for (const std::string& why : saved.passed_over()) log::warn("skipped a checkpoint: " + why);
  return std::unique_ptr<TensorSource>(std::make_unique<CheckpointSource>(std::move(saved)));
}

}  // namespace tutti
