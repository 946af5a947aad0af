// A checkpoint is made here as a save makes it: a draft with one file for each rank, flushed, a manifest with new
// digests, a rename. What a save has in memory is read here from a source, whatever kind of file that is, piece by
// piece, its own digests checked on the way, so that memory does not grow with the tensors (copy_file.h). Files are
// written side by side, each by a thread.
//
// Weights for others are no checkpoint: files as Hugging Face names them, each replaced as a whole, and an index that
// comes last, since without it nobody looks for the others.
#include "tutti/checkpoint/tools/rewrite.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "tutti/base/file.h"
#include "tutti/checkpoint/folder/folder.h"
#include "tutti/checkpoint/folder/folder_lock.h"
#include "tutti/checkpoint/io/replace_file.h"
#include "tutti/checkpoint/sources/sources.h"
#include "tutti/version.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

// Each holds a piece, and at most 32 MiB of chunks.
constexpr int kMostWriters = 4;
// A folder has one history: a checkpoint is not put between those of a job that runs, and that ends no sooner if waited
// for.
constexpr auto kJobPatience = std::chrono::seconds(2);

std::uint64_t bytes_of(const TensorSource& source, const CopiedBox& copied) {
  return copied.box.elements() * source.find(copied.key)->element_bytes;
}

Status check_for_checkpoint(const TensorSource& source, const std::vector<std::vector<CopiedBox>>& dealt) {
  std::map<TensorKey, bool> seen;
  for (const auto& boxes : dealt) {
    for (const CopiedBox& copied : boxes) {
      if (!seen.emplace(copied.key, true).second) continue;
      const SourceTensor& tensor = *source.find(copied.key);
      const auto dtype = tensor.known_dtype();
      if (!dtype || *safetensors_name(*dtype) == '\0')
        return Error{
            .code = Code::kUnsupported,
            .detail = fmt::format("{} is {}, which a checkpoint does not know", to_string(copied.key), tensor.dtype),
            .hint = "name the tensors that are wanted"};
      std::vector<TensorBox> parts;
      for (const TensorPart& part : tensor.parts) parts.push_back(part.box);
      if (const std::string trouble = gap_or_overlap(tensor.shape, parts); !trouble.empty())
        return invalid_argument(
            fmt::format("{} {} is not whole: {}", to_string(copied.key), shape_text(tensor.shape), trouble),
            "give the files of all ranks");
    }
  }
  return {};
}

struct FileTask {
  std::string name;
  std::vector<CopiedBox> boxes;
  CopiedFile copied = {};
};

Status write_file(const TensorSource& source, const std::string& path, const std::string& mark, FileTask& task,
                  SharedProgress& progress) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd) return system_error(errno, fmt::format("cannot create {}", path));
  task.copied = TUTTI_TRY(copy_to_file(source, task.boxes, {{"tutti.checkpoint", mark}}, fd.get(), path, progress));
  task.copied.file.name = task.name;
  if (::fsync(fd.get()) != 0) return system_error(errno, fmt::format("cannot flush {}", path));
  return {};
}

Manifest manifest_of(const TensorSource& source, std::vector<FileTask>& tasks, const CheckpointFacts& facts) {
  Manifest manifest{.facts = facts, .files = {}, .tensors = {}};
  manifest.facts.versions.emplace("tutti", TUTTI_VERSION);
  for (FileTask& task : tasks) {
    for (std::size_t b = 0; b < task.boxes.size(); ++b) {
      const SourceTensor& from = *source.find(task.boxes[b].key);
      StoredTensor& tensor = manifest.tensors[task.boxes[b].key];
      tensor.dtype = *from.known_dtype();
      tensor.shape = from.shape;
      task.copied.boxes[b].file = std::uint32_t(manifest.files.size());
      tensor.boxes.push_back(std::move(task.copied.boxes[b]));
    }
    manifest.files.push_back(task.copied.file);
  }
  return manifest;
}

Status replace_text(const std::string& path, const std::string& text) {
  return replace_file(
      path, [&](int fd, const std::string& name) { return write_all(fd, std::as_bytes(std::span(text)), name); });
}

}  // namespace

std::vector<std::vector<CopiedBox>> deal_out(const TensorSource& source, int ranks, ShardSplit split) {
  const auto count = std::uint64_t(ranks);
  std::vector<std::vector<CopiedBox>> dealt(count);
  std::vector<std::uint64_t> bytes(count);
  const std::size_t dimension = split == ShardSplit::kColumns ? 1 : 0;
  for (const auto& [key, tensor] : source.tensors()) {
    const TensorBox whole = TensorBox::whole(tensor.shape);
    if (split == ShardSplit::kWhole || tensor.shape.size() <= dimension || tensor.shape[dimension] < count) {
      const auto least = std::size_t(std::min_element(bytes.begin(), bytes.end()) - bytes.begin());
      dealt[least].push_back({key, whole});
      bytes[least] += tensor.elements() * tensor.element_bytes;
      continue;
    }
    const std::uint64_t size = tensor.shape[dimension];
    for (std::uint64_t r = 0; r < count; ++r) {
      TensorBox box = whole;
      box.begin[dimension] = size / count * r + std::min(r, size % count);
      box.extent[dimension] = size / count + (r < size % count);
      bytes[r] += box.elements() * tensor.element_bytes;
      dealt[r].push_back({key, std::move(box)});
    }
  }
  return dealt;
}

Result<std::string> write_checkpoint(const TensorSource& source, const std::vector<std::vector<CopiedBox>>& dealt,
                                     const CheckpointFacts& facts, const std::string& folder, const BytesDone& tell) {
  TUTTI_TRY(check_for_checkpoint(source, dealt));
  const std::string path = folder + "/" + checkpoint_folder_name(facts.step);
  TUTTI_TRY(make_folder(folder));
  const FolderLock as_a_job = TUTTI_TRY(FolderLock::take(folder, FolderUse::kJob, {.patience = kJobPatience}));
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error)))
    return invalid_argument(fmt::format("{} is there already", path), "give another folder, or move it away");
  if (const auto found = TUTTI_TRY(list_checkpoints(folder)); !found.empty() && found.back().step > facts.step)
    return invalid_argument(
        fmt::format(
            "{} has a checkpoint of step {}, and this one is of step {}: a job that resumes would take the later "
            "one",
            folder, found.back().step, facts.step),
        "give another folder, or move the later ones away");
  const FolderLock writing = TUTTI_TRY(FolderLock::take(folder, FolderUse::kWriting));
  auto draft = TUTTI_TRY(CheckpointDraft::create(folder, facts.step));
  const std::string draft_path = CheckpointDraft::path_of(folder, facts.step);

  std::vector<FileTask> tasks;
  std::uint64_t bytes = 0;
  for (std::size_t rank = 0; rank < dealt.size(); ++rank) {
    for (const bool of_optimizer : {false, true}) {
      FileTask task{
          fmt::format("{}-{:05}-of-{:05}.safetensors", of_optimizer ? "optimizer" : "model", rank + 1, dealt.size()),
          {}};
      for (const CopiedBox& copied : dealt[rank])
        if (copied.key.state.empty() != of_optimizer) {
          task.boxes.push_back(copied);
          bytes += bytes_of(source, copied);
        }
      if (!task.boxes.empty()) tasks.push_back(std::move(task));
    }
  }
  std::random_device random;
  const std::string mark = fmt::format("{:08x}{:08x}", random(), random());
  SharedProgress progress(bytes, tell);
  TUTTI_TRY(in_parallel(kMostWriters, tasks.size(), [&](std::size_t t) {
    return write_file(source, draft_path + "/" + tasks[t].name, mark, tasks[t], progress);
  }));
  TUTTI_TRY(
      replace_text(draft_path + "/" + kManifestName, TUTTI_TRY(compose_manifest(manifest_of(source, tasks, facts)))));
  TUTTI_TRY(as_a_job.still_mine());
  TUTTI_TRY(writing.still_mine());
  TUTTI_TRY(draft.commit({}));
  return path;
}

Result<std::vector<std::string>> write_weights(const TensorSource& source, const std::vector<TensorKey>& keys,
                                               std::uint64_t most_bytes, const std::string& folder,
                                               const BytesDone& tell) {
  std::vector<FileTask> tasks(1);
  std::uint64_t in_this = 0, all = 0;
  for (const TensorKey& key : keys) {
    const SourceTensor& tensor = *source.find(key);
    const std::uint64_t bytes = tensor.elements() * tensor.element_bytes;
    if (in_this > 0 && bytes > most_bytes - std::min(in_this, most_bytes)) {
      tasks.emplace_back();
      in_this = 0;
    }
    in_this += bytes;
    all += bytes;
    tasks.back().boxes.push_back({key, TensorBox::whole(tensor.shape)});
  }
  TUTTI_TRY(make_folder(folder));
  const FolderLock writing = TUTTI_TRY(FolderLock::take(folder, FolderUse::kWriting));
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (step_of_folder(name))
      return invalid_argument(fmt::format("{} is a folder of checkpoints", folder),
                              "give another for the weights alone");
    if (name.ends_with(".safetensors") || name == kSafetensorsIndex)
      return invalid_argument(fmt::format("{} is there already", entry.path().string()), "give another folder");
  }
  auto weight_map = nlohmann::ordered_json::object();
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    tasks[t].name =
        tasks.size() == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", t + 1, tasks.size());
    for (const CopiedBox& copied : tasks[t].boxes) weight_map[copied.key.name] = tasks[t].name;
  }
  SharedProgress progress(all, tell);
  const Status written = in_parallel(kMostWriters, tasks.size(), [&](std::size_t t) {
    return replace_file(folder + "/" + tasks[t].name, [&](int fd, const std::string& name) {
      return copy_to_file(source, tasks[t].boxes, {}, fd, name, progress).status();
    });
  });
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", all}}}, {"weight_map", std::move(weight_map)}};
  const Status whole = written.ok()
                           ? replace_text(folder + "/" + kSafetensorsIndex,
                                          index.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n")
                           : written;
  if (!whole.ok()) {
    for (const FileTask& task : tasks) (void)::unlink((folder + "/" + task.name).c_str());
    return whole;
  }
  std::vector<std::string> names;
  for (const FileTask& task : tasks) names.push_back(task.name);
  return names;
}

}  // namespace tutti
