// A box is read from all stored boxes that it has something in common with, each through its runs. Before a checkpoint
// is given out, its manifest, and the names, sizes and headers of its files are looked at, and by default every byte of
// it: a program that has begun to load should not find out in the middle that it cannot.
#include "tutti/checkpoint/io/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/folder/stored_files.h"
#include "tutti/checkpoint/io/stored_bytes.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/objects.h"

namespace tutti {
namespace {

constexpr std::size_t kMostNamed = 20;
constexpr std::string_view kBetweenPaths("\0", 1);

std::string named(const std::vector<std::string>& names) {
  std::string out = join(std::span(names).first(std::min(names.size(), kMostNamed)), ", ");
  if (names.size() > kMostNamed) out += fmt::format(" and {} more", names.size() - kMostNamed);
  return out;
}

// Of a list that may be long.
std::string first_of(std::vector<std::string> troubles) {
  constexpr std::size_t kMost = 4;
  const std::size_t all = troubles.size();
  if (all > kMost) {
    troubles.resize(kMost);
    troubles.push_back(fmt::format("and {} more", all - kMost));
  }
  return join(troubles, "; ");
}

}  // namespace

Result<CheckpointReader> CheckpointReader::open_one(const std::string& folder) {
  CheckpointReader reader;
  reader.folder_ = folder;
  reader.manifest_ = TUTTI_TRY(read_manifest(folder));
  make_room_for_files(reader.manifest_.files.size());
  for (const StoredFile& file : reader.manifest_.files)
    reader.files_.push_back(TUTTI_TRY(open_stored_file(folder, file)));
  return reader;
}

CheckpointReader CheckpointReader::of_files(std::string name, Manifest manifest, std::vector<Fd> files) {
  CheckpointReader reader;
  reader.folder_ = std::move(name);
  reader.manifest_ = std::move(manifest);
  reader.files_ = std::move(files);
  return reader;
}

// On all ranks of `group`, each with its part of the bytes.
Result<CheckpointReader> CheckpointReader::open_whole(const Group& group, const std::string& folder,
                                                      VerifyLevel level) {
  auto reader = open_one(folder);
  Status good = reader.status();
  if (good.ok() && level == VerifyLevel::kAll)
    good = reader->verify(group ? std::uint64_t(group.rank()) : 0, group ? std::uint64_t(group.size()) : 1);
  TUTTI_TRY(agree(group, good));
  return reader;
}

Result<CheckpointReader> CheckpointReader::open(const Group& group, const std::string& path, VerifyLevel level) {
  try {
    // Rank 0 looks what is there, so that all look at the same.
    auto found = !group || group.rank() == 0 ? checkpoints_at(path) : std::vector<std::string>();
    TUTTI_TRY(agree(group, found.status()));
    std::string list = join(*found, kBetweenPaths);
    if (group) broadcast_bytes(group, list);
    std::vector<std::string> passed_over;
    Error last;
    for (const std::string& folder : split(list, kBetweenPaths[0])) {
      auto reader = open_whole(group, folder, level);
      if (group) TUTTI_TRY(group.status());
      if (reader.ok()) {
        reader->passed_over_ = std::move(passed_over);
        return reader;
      }
      last = reader.error();
      passed_over.push_back(to_string(last));
    }
    if (passed_over.size() == 1) return last;
    return Error{.code = Code::kCorrupt,
                 .detail = fmt::format("none of the {} checkpoints in {} verifies; newest first: {}",
                                       passed_over.size(), path, first_of(passed_over)),
                 .hint = fmt::format("tutti ckpt verify {} --all checks every byte of each", path)};
  } catch (const Exception& error) {
    return error.error();
  }
}

Result<CheckpointReader> CheckpointReader::open(const std::string& path, VerifyLevel level) {
  return open(Group(), path, level);
}

const StoredTensor* CheckpointReader::find(const TensorKey& key) const {
  const auto found = manifest_.tensors.find(key);
  return found == manifest_.tensors.end() ? nullptr : &found->second;
}

TensorMatch CheckpointReader::compare(std::span<const StateBox> wanted) const {
  TensorMatch match;
  std::set<TensorKey> known, told;  // parts of one tensor are wanted one by one
  for (const StateBox& want : wanted) {
    known.insert(want.key);
    const StoredTensor* const tensor = find(want.key);
    const bool fits = tensor && tensor->dtype == want.dtype && tensor->shape == want.shape;
    match.fits.push_back(fits);
    if (fits || !told.insert(want.key).second) continue;
    if (!tensor) {
      match.missing.push_back(to_string(want.key));
    } else {
      match.misshapen.push_back(fmt::format("{} is {}{}, wanted {}{}", to_string(want.key), name(tensor->dtype),
                                            shape_text(tensor->shape), name(want.dtype), shape_text(want.shape)));
    }
  }
  for (const auto& [key, tensor] : manifest_.tensors)
    if (!known.contains(key)) match.extra.push_back(to_string(key));
  return match;
}

std::string to_string(const TensorMatch& match) {
  std::vector<std::string> troubles;
  if (!match.missing.empty()) troubles.push_back("it lacks " + named(match.missing));
  if (!match.misshapen.empty()) troubles.push_back(named(match.misshapen));
  if (!match.extra.empty()) troubles.push_back("it has more: " + named(match.extra));
  return join(troubles, "; ");
}

Result<TensorMatch> CheckpointReader::match(std::span<const StateBox> wanted, MatchMode mode) const {
  TensorMatch match = compare(wanted);
  if (match.whole()) return match;
  switch (mode) {
    case MatchMode::kStrict:
      return of_another_model(*this, match);
    case MatchMode::kReport:
      log::warn(fmt::format("the checkpoint {} is of another model: {}; tensors that do not fit keep their values",
                            folder_, to_string(match)));
      break;
    case MatchMode::kIgnore:
      break;
  }
  return match;
}

Error of_another_model(const CheckpointReader& saved, const TensorMatch& match) {
  return Error{.code = Code::kMismatch,
               .detail = fmt::format("the checkpoint {} is of another model: {}", saved.folder(), to_string(match)),
               .hint = "start with the options of the run that saved it"};
}

Status CheckpointReader::expect(std::span<const StateBox> wanted) const {
  return match(wanted, MatchMode::kStrict).status();
}

namespace {

// What is held of a stored box after one part serves the next.
class StoredTensorStream : public TensorStream {
 public:
  StoredTensorStream(const StoredTensor& tensor, std::uint64_t chunk_bytes) : tensor_(tensor) {
    chunks_.most = std::max<std::size_t>(1, kMostHeld / chunk_bytes);
  }
  void add(int fd, std::string path, const StoredBox& stored, std::uint64_t chunk_bytes, std::string what) {
    bytes_.emplace_back(fd, std::move(path), stored, stored.box.elements() * size_of(tensor_.dtype), chunk_bytes,
                        std::move(what), chunks_);
  }

  Status read(const TensorBox& box, std::byte* out, std::size_t row_stride) override {
    const std::uint64_t element = size_of(tensor_.dtype), row_bytes = box.row_elements() * element;
    const bool packed = row_stride == 0 || row_stride == row_bytes;
    for (std::size_t b = 0; b < bytes_.size(); ++b) {
      const auto run = [&](std::uint64_t in_stored, std::uint64_t in_box, std::uint64_t count) {
        const std::uint64_t at = in_box * element;
        const std::uint64_t place = packed ? at : at / row_bytes * row_stride + at % row_bytes;
        return bytes_[b].read(in_stored * element, {out + place, count * element});
      };
      TUTTI_TRY(for_each_run(tensor_.boxes[b].box, box, packed, run));
    }
    return {};
  }

 private:
  static constexpr std::uint64_t kMostHeld = std::uint64_t(32) << 20;
  const StoredTensor& tensor_;
  HeldChunks chunks_;
  std::vector<StoredBytes> bytes_;  // of its boxes
};

}  // namespace

Result<const StoredTensor*> CheckpointReader::look_up(const TensorKey& key) const {
  if (const StoredTensor* const tensor = find(key)) return tensor;
  return Error{.code = Code::kNotFound,
               .detail = fmt::format("the checkpoint {} has no tensor {}", folder_, to_string(key))};
}

Result<std::unique_ptr<TensorStream>> CheckpointReader::stream(const TensorKey& key) const {
  const StoredTensor* const tensor = TUTTI_TRY(look_up(key));
  auto stream = std::make_unique<StoredTensorStream>(*tensor, manifest_.chunk_bytes);
  for (const StoredBox& stored : tensor->boxes)
    stream->add(files_[stored.file].get(), folder_ + "/" + manifest_.files[stored.file].name, stored,
                manifest_.chunk_bytes, to_string(key) + " " + box_text(stored.box));
  return std::unique_ptr<TensorStream>(std::move(stream));
}

Result<const StoredTensor*> CheckpointReader::check_box(const TensorKey& key, const TensorBox& box) const {
  const StoredTensor* const tensor = TUTTI_TRY(look_up(key));
  if (box.begin.size() == box.extent.size() && box.inside(tensor->shape)) return tensor;
  return invalid_argument(fmt::format("the tensor {} of the checkpoint {} is {}; the box that is wanted is not inside",
                                      to_string(key), folder_, shape_text(tensor->shape)));
}

Status CheckpointReader::read(const TensorKey& key, const TensorBox& box, void* into, std::size_t row_stride) const {
  const StoredTensor* const tensor = TUTTI_TRY(check_box(key, box));
  if (const std::uint64_t bytes = box.row_elements() * size_of(tensor->dtype); row_stride != 0 && row_stride < bytes)
    return invalid_argument(
        fmt::format("rows of {} have {} bytes; they do not fit a stride of {}", to_string(key), bytes, row_stride));
  const auto reader = TUTTI_TRY(stream(key));
  return reader->read(box, static_cast<std::byte*>(into), row_stride);
}

Status CheckpointReader::read(const TensorKey& key, const TensorBox& box, const RowSink& sink) const {
  const StoredTensor* const tensor = TUTTI_TRY(check_box(key, box));
  if (box.elements() == 0) return {};
  const auto reader = TUTTI_TRY(stream(key));
  const std::uint64_t rows = box.row_count(), bytes = box.row_elements() * size_of(tensor->dtype);
  const std::uint64_t at_once = std::min(rows, std::max<std::uint64_t>(1, kChunkBytes / bytes));
  std::vector<std::byte> buffer(at_once * bytes);
  for (std::uint64_t first = 0; first < rows; first += at_once) {
    TensorBox part = box;
    if (!box.extent.empty()) {
      part.begin[0] = box.begin[0] + first;
      part.extent[0] = std::min(at_once, rows - first);
    }
    TUTTI_TRY(reader->read(part, buffer.data()));
    TUTTI_TRY(sink(first, part.row_count(), buffer.data()));
  }
  return {};
}

Status CheckpointReader::read(const TensorKey& key, std::span<std::byte> into) const {
  const StoredTensor* const tensor = find(key);
  const TensorBox all = tensor ? TensorBox::whole(tensor->shape) : TensorBox();
  if (tensor && into.size() != all.elements() * size_of(tensor->dtype))
    return invalid_argument(fmt::format("the tensor {} of the checkpoint {} has {} bytes; the buffer given has {}",
                                        to_string(key), folder_, all.elements() * size_of(tensor->dtype), into.size()));
  return read(key, all, into.data());
}

Status CheckpointReader::verify(std::uint64_t part, std::uint64_t parts) const {
  HeldChunks chunks;
  const auto all = [](std::size_t) { return true; };
  return for_each_chunk_run(manifest_, part, parts, all, [&](const ChunkRun& run) -> Status {
    StoredBytes bytes(files_[run.box.file].get(), folder_ + "/" + manifest_.files[run.box.file].name, run.box,
                      run.box.box.elements() * size_of(run.tensor.dtype), manifest_.chunk_bytes,
                      to_string(run.key) + " " + box_text(run.box.box), chunks);
    for (std::uint64_t chunk = run.begin; chunk < run.end; ++chunk) TUTTI_TRY(bytes.check_chunk(chunk));
    return {};
  });
}

}  // namespace tutti
