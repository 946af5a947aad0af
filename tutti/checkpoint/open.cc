// The kind of a file is told by how it begins, and not by its name: a zip archive or a pickle is PyTorch's, eight bytes
// of length and a '{' are safetensors'. Folders are told by what is in them.
#include "tutti/checkpoint/open.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/io/stored_bytes.h"
#include "tutti/checkpoint/sources/sources.h"
#include "tutti/checkpoint/torch/torch_file.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

// A tensor of several parts, each packed in itself.
class PartsStream : public TensorStream {
 public:
  PartsStream(const SourceTensor& tensor, std::string what) : tensor_(tensor), what_(std::move(what)) {}
  void add(std::unique_ptr<PackedBytes> bytes) { bytes_.push_back(std::move(bytes)); }

  Status read(const TensorBox& box, std::byte* into, std::size_t row_stride) override {
    const std::uint64_t element = tensor_.element_bytes, row_bytes = box.row_elements() * element;
    const bool packed = row_stride == 0 || row_stride == row_bytes;
    std::uint64_t found = 0;
    for (std::size_t p = 0; p < bytes_.size(); ++p) {
      const auto run = [&](std::uint64_t in_part, std::uint64_t in_box, std::uint64_t count) {
        const std::uint64_t at = in_box * element;
        const std::uint64_t place = packed ? at : at / row_bytes * row_stride + at % row_bytes;
        found += count;
        return bytes_[p]->read(in_part * element, {into + place, count * element});
      };
      TUTTI_TRY(for_each_run(tensor_.parts[p].box, box, packed, run));
    }
    if (found == box.elements()) return {};
    std::vector<std::string> here;
    for (const TensorPart& part : tensor_.parts) here.push_back(box_text(part.box));
    return Error{.code = Code::kNotFound,
                 .detail = fmt::format("of {} {} there is only {}; {} was wanted", what_, shape_text(tensor_.shape),
                                       join(here, " and "), box_text(box)),
                 .hint = "open the files of all ranks together"};
  }

 private:
  const SourceTensor& tensor_;
  const std::string what_;
  std::vector<std::unique_ptr<PackedBytes>> bytes_;
};

class SeveralSources : public TensorSource {
 public:
  static Result<std::unique_ptr<TensorSource>> open(std::span<const std::string> paths) {
    auto all = std::make_unique<SeveralSources>();
    for (const std::string& path : paths) all->sources_.push_back(TUTTI_TRY(open_tensors(path)));
    const TensorSource& first = *all->sources_[0];
    all->path_ = fmt::format("{} and {} more", first.path(), paths.size() - 1);
    all->format_ = first.format();
    all->about_ = first.about();
    for (std::size_t s = 0; s < all->sources_.size(); ++s) {
      all->has_digests_ = all->has_digests_ && all->sources_[s]->has_digests();
      const auto& skipped = all->sources_[s]->skipped();
      all->skipped_.insert(all->skipped_.end(), skipped.begin(), skipped.end());
      for (const auto& [key, tensor] : all->sources_[s]->tensors()) TUTTI_TRY(all->add(s, key, tensor));
    }
    return std::unique_ptr<TensorSource>(std::move(all));
  }

  Result<std::unique_ptr<PackedBytes>> open_part(const TensorKey& key, std::size_t part) const override {
    const auto& [source, number] = places_.at(key).at(part);
    return sources_[source]->open_part(key, number);
  }

 private:
  Status add(std::size_t source, const TensorKey& key, const SourceTensor& tensor) {
    const auto [found, fresh] =
        tensors_.try_emplace(key, SourceTensor{tensor.dtype, tensor.element_bytes, tensor.shape, {}});
    SourceTensor& mine = found->second;
    if (mine.dtype != tensor.dtype || mine.shape != tensor.shape)
      return Error{
          .code = Code::kMismatch,
          .detail = fmt::format("{} is {}{}, but in {} it is {}{}", to_string(key), mine.dtype, shape_text(mine.shape),
                                sources_[source]->path(), tensor.dtype, shape_text(tensor.shape))};
    for (std::size_t p = 0; p < tensor.parts.size(); ++p) {
      const TensorPart& part = tensor.parts[p];
      bool known = false;
      for (const TensorPart& other : mine.parts) {
        if (other.box == part.box) {
          known = true;
        } else if (part.box.elements() > 0 && other.box.elements() > 0 && other.box.overlaps(part.box)) {
          return Error{.code = Code::kCorrupt,
                       .detail = fmt::format("{} of {} in {} overlaps {} in {}", box_text(part.box), to_string(key),
                                             part.file, box_text(other.box), other.file)};
        }
      }
      if (known) continue;
      mine.parts.push_back(part);
      places_[key].push_back({source, p});
    }
    return {};
  }

  std::vector<std::unique_ptr<TensorSource>> sources_;
  std::map<TensorKey, std::vector<std::pair<std::size_t, std::size_t>>> places_;
};

// The first bytes of a file; fewer where it has fewer.
Result<std::string> beginning_of(const std::string& path) {
  const Fd fd = TUTTI_TRY(open_file(path, O_NONBLOCK));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_error(errno, fmt::format("cannot look at {}", path));
  if (!S_ISREG(info.st_mode))
    return invalid_argument(fmt::format("{} is no file ({})", path, S_ISFIFO(info.st_mode) ? "a pipe" : "a device"),
                            "it is read at any place: write what comes through it to a file first");
  std::string text(std::min<std::uint64_t>(std::uint64_t(info.st_size), 16), '\0');
  TUTTI_TRY(read_all(fd.get(), 0, std::as_writable_bytes(std::span(text)), path));
  return text;
}

}  // namespace

std::optional<DType> SourceTensor::known_dtype() const {
  return dtype == "C128" ? DType::kC128 : safetensors_dtype(dtype);
}

std::uint64_t SourceTensor::bytes_here() const {
  std::uint64_t bytes = 0;
  for (const TensorPart& part : parts) bytes += part.box.elements() * element_bytes;
  return bytes;
}

bool SourceTensor::is_whole() const { return bytes_here() == elements() * element_bytes; }

const SourceTensor* TensorSource::find(const TensorKey& key) const {
  const auto found = tensors_.find(key);
  return found == tensors_.end() ? nullptr : &found->second;
}

Result<const SourceTensor*> TensorSource::look_up(const TensorKey& key) const {
  if (const SourceTensor* const tensor = find(key)) return tensor;
  std::vector<std::string> names;
  for (const auto& [other, tensor] : tensors_) names.push_back(to_string(other));
  return Error{.code = Code::kNotFound,
               .detail = fmt::format("{} has no tensor {}", path_, to_string(key)),
               .hint = did_you_mean(nearest(to_string(key), names))};
}

Result<std::unique_ptr<TensorStream>> TensorSource::stream(const TensorKey& key) const {
  const SourceTensor* const tensor = TUTTI_TRY(look_up(key));
  auto stream = std::make_unique<PartsStream>(*tensor, to_string(key));
  for (std::size_t p = 0; p < tensor->parts.size(); ++p) stream->add(TUTTI_TRY(open_part(key, p)));
  return std::unique_ptr<TensorStream>(std::move(stream));
}

Status TensorSource::read(const TensorKey& key, const TensorBox& box, std::span<std::byte> into) const {
  const SourceTensor* const tensor = TUTTI_TRY(look_up(key));
  if (box.begin.size() != box.extent.size() || !box.inside(tensor->shape))
    return invalid_argument(fmt::format("{} of {} is {}; the box that is wanted is not inside", to_string(key), path_,
                                        shape_text(tensor->shape)));
  if (into.size() != box.elements() * tensor->element_bytes)
    return invalid_argument(fmt::format("what is wanted of {} has {} bytes; the buffer given has {}", to_string(key),
                                        box.elements() * tensor->element_bytes, into.size()));
  if (into.empty()) return {};
  const auto reading = TUTTI_TRY(stream(key));
  return reading->read(box, into.data());
}

Status TensorSource::read(const TensorKey& key, std::span<std::byte> into) const {
  const SourceTensor* const tensor = TUTTI_TRY(look_up(key));
  return read(key, TensorBox::whole(tensor->shape), into);
}

bool is_checkpoint_folder(const std::string& path) {
  std::error_code error;
  const bool of_others =
      fs::exists(path + "/" + kSafetensorsIndex, error) || fs::exists(path + "/model.safetensors", error);
  return fs::is_directory(path, error) && (!of_others || fs::exists(path + "/" + kManifestName, error));
}

Result<std::unique_ptr<TensorSource>> open_tensors(const std::string& path) {
  std::error_code error;
  if (is_checkpoint_folder(path)) return open_checkpoint(path);
  if (fs::is_directory(path, error)) return open_safetensors_folder(path);
  const std::string begin = TUTTI_TRY(beginning_of(path));
  if (path.ends_with(kSafetensorsIndex)) return open_safetensors_folder(fs::path(path).parent_path().string());
  if (begin.size() > 8 && begin[8] == '{') return open_safetensors_file(path);
  if (TorchFile::begins_like_one(begin)) return open_torch_file(path);
  return Error{.code = Code::kUnsupported,
               .detail = fmt::format("{} is neither a checkpoint nor a safetensors file nor one of PyTorch", path),
               .hint = "give the folder of a job, of a checkpoint, or a file"};
}

Result<std::unique_ptr<TensorSource>> open_tensors(std::span<const std::string> paths) {
  if (paths.empty()) return invalid_argument("there is nothing to open");
  return paths.size() == 1 ? open_tensors(paths[0]) : SeveralSources::open(paths);
}

std::vector<RankBox> boxes_of_rank(const TensorSource& source, int rank) {
  const std::string mark = fmt::format("-{:05}-of-", rank + 1);
  std::vector<RankBox> boxes;
  for (const auto& [key, tensor] : source.tensors())
    for (const TensorPart& part : tensor.parts)
      if (part.file.find(mark) != std::string::npos) boxes.push_back({key, part.box});
  return boxes;
}

}  // namespace tutti
