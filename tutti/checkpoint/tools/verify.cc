#include "tutti/checkpoint/tools/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>

#include "tutti/checkpoint/folder/stored_files.h"
#include "tutti/checkpoint/io/stored_bytes.h"
#include "tutti/checkpoint/open.h"
#include "tutti/checkpoint/sources/sources.h"

namespace tutti {
namespace {

constexpr int kMostCheckers = 8;

// Chunk by chunk, since each has a digest of its own.
VerifyReport verify_checkpoint(const std::string& folder, const BytesDone& tell) {
  VerifyReport report{.path = folder, .format = "Tutti checkpoint", .troubles = {}};
  const auto manifest = read_manifest(folder);
  if (!manifest.ok()) {
    report.troubles.push_back(manifest.error());
    return report;
  }
  report.files = manifest->files.size();
  report.tensors = manifest->tensors.size();
  make_room_for_files(manifest->files.size());
  std::vector<Fd> files;
  for (const StoredFile& file : manifest->files) {
    auto opened = open_stored_file(folder, file);
    if (!opened.ok()) report.troubles.push_back(opened.error());
    files.push_back(opened.ok() ? *std::move(opened) : Fd());
  }
  struct Task {
    const TensorKey* key;
    const StoredTensor* tensor;
    const StoredBox* box;
    std::vector<Error> troubles = {};
  };
  std::vector<Task> tasks;
  for (const auto& [key, tensor] : manifest->tensors)
    for (const StoredBox& box : tensor.boxes) {
      if (!files[box.file]) continue;
      report.bytes += box.box.elements() * size_of(tensor.dtype);
      tasks.push_back({&key, &tensor, &box});
    }
  std::sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) {
    return std::pair(a.box->file, a.box->offset) < std::pair(b.box->file, b.box->offset);
  });
  SharedProgress progress(report.bytes, tell);
  const Status all = in_parallel(kMostCheckers, tasks.size(), [&](std::size_t t) -> Status {
    Task& task = tasks[t];
    HeldChunks chunks;
    const std::uint64_t bytes = task.box->box.elements() * size_of(task.tensor->dtype);
    StoredBytes stored(files[task.box->file].get(), folder + "/" + manifest->files[task.box->file].name, *task.box,
                       bytes, manifest->chunk_bytes, to_string(*task.key) + " " + box_text(task.box->box), chunks);
    for (std::uint64_t chunk = 0; chunk < stored.chunks(); ++chunk) {
      if (const Status good = stored.check_chunk(chunk); !good.ok()) task.troubles.push_back(good.error());
      progress.add(std::min(manifest->chunk_bytes, bytes - chunk * manifest->chunk_bytes));
    }
    return {};
  });
  all.or_throw();
  for (const Task& task : tasks)
    report.troubles.insert(report.troubles.end(), task.troubles.begin(), task.troubles.end());
  return report;
}

// Others are checked by being read.
Result<VerifyReport> verify_source(const std::string& path, const BytesDone& tell) {
  const auto source = TUTTI_TRY(open_tensors(path));
  VerifyReport report{.path = source->path(), .format = source->format(), .troubles = {}};
  report.has_digests = source->has_digests();
  report.tensors = source->tensors().size();
  report.skipped = source->skipped();
  std::map<std::string, bool> names;
  struct Task {
    const TensorKey* key;
    const SourceTensor* tensor;
    std::vector<Error> troubles = {};
  };
  std::vector<Task> tasks;
  for (const auto& [key, tensor] : source->tensors()) {
    report.bytes += tensor.bytes_here();
    for (const TensorPart& part : tensor.parts) names[part.file] = true;
    tasks.push_back({&key, &tensor});
  }
  report.files = names.size();
  SharedProgress progress(report.bytes, tell);
  const Status all = in_parallel(kMostCheckers, tasks.size(), [&](std::size_t t) -> Status {
    Task& task = tasks[t];
    std::vector<std::byte> piece(kPieceBytes);
    const auto read = [&]() -> Status {
      const auto stream = TUTTI_TRY(source->stream(*task.key));
      for (const TensorPart& part : task.tensor->parts)
        TUTTI_TRY(
            for_each_piece(part.box, kPieceBytes / task.tensor->element_bytes, [&](const TensorBox& box) -> Status {
              TUTTI_TRY(stream->read(box, piece.data()));
              progress.add(box.elements() * task.tensor->element_bytes);
              return {};
            }));
      return {};
    };
    if (const Status good = read(); !good.ok()) task.troubles.push_back(good.error());
    return {};
  });
  all.or_throw();
  for (const Task& task : tasks)
    report.troubles.insert(report.troubles.end(), task.troubles.begin(), task.troubles.end());
  return report;
}

}  // namespace

Result<VerifyReport> verify_tensors(const std::string& path, const BytesDone& tell) {
  std::error_code error;
  if (!is_checkpoint_folder(path)) return verify_source(path, tell);
  const auto folders = TUTTI_TRY(checkpoints_at(path));
  return verify_checkpoint(folders[0], tell);
}

}  // namespace tutti
