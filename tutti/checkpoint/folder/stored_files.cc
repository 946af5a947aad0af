// What lies in the folder of a checkpoint is told from what lies there by mistake or by malice before a byte of it is
// believed: links are not followed, a pipe does not keep anybody waiting, sizes and headers are those of the manifest.
#include "tutti/checkpoint/folder/stored_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "tutti/base/crc32c.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/folder/folder.h"
#include "tutti/checkpoint/format/digests.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostManifest = std::uint64_t(1) << 30;

Error corrupt(const std::string& path, const std::string& detail) {
  return Error{.code = Code::kCorrupt, .detail = fmt::format("{} {}", path, detail)};
}

// A regular file, and its size.
Result<std::pair<Fd, std::uint64_t>> open_regular(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd && errno == ENOENT) return corrupt(path, "is missing");
  if (!fd && errno == ELOOP) return corrupt(path, "is a link, where the checkpoint has a file");
  const char* const hint = errno == EMFILE ? "raise the limit of open files: ulimit -n" : "";
  if (!fd) return system_error(errno, fmt::format("cannot open {}", path), hint);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_error(errno, fmt::format("cannot look at {}", path));
  if (!S_ISREG(info.st_mode)) return corrupt(path, "is no regular file");
  return std::pair(std::move(fd), std::uint64_t(info.st_size));
}

// A folder of a step's name is taken for that step: for the newest, or for one that is to go.
Status check_name(const std::string& folder, const std::string& path, std::int64_t step) {
  const auto named = step_of_folder(fs::path(folder + "/").parent_path().filename().string());
  if (!named || *named == step) return {};
  Error error = corrupt(
      path, fmt::format("is of step {}, its folder is named for step {}: it was renamed or copied", step, *named));
  error.hint = fmt::format("name it {}, or by a name of your own in another folder", checkpoint_folder_name(step));
  return error;
}

}  // namespace

Result<Manifest> read_manifest(const std::string& folder) {
  std::error_code unknown;
  if (!fs::exists(folder, unknown) && !unknown)
    return Error{.code = Code::kNotFound, .detail = fmt::format("there is no folder {}", folder)};
  const std::string path = folder + "/" + kManifestName;
  const auto [fd, size] = TUTTI_TRY(open_regular(path));
  if (size > kMostManifest) return corrupt(path, fmt::format("has {}, which no manifest has", bytes_text(size)));
  std::string text(size, '\0');
  TUTTI_TRY(read_all(fd.get(), 0, std::as_writable_bytes(std::span(text)), path));
  auto manifest = parse_manifest(text);
  if (manifest.ok()) {
    TUTTI_TRY(check_name(folder, path, manifest->facts.step));
    return manifest;
  }
  Error error = manifest.error();
  error.detail = fmt::format("{}: {}", path, error.detail);
  return error;
}

Result<Fd> open_stored_file(const std::string& folder, const StoredFile& stored) {
  const std::string path = folder + "/" + stored.name;
  auto [fd, size] = TUTTI_TRY(open_regular(path));
  if (size != stored.bytes)
    return corrupt(path,
                   fmt::format("has {} bytes; the manifest says {}: it was cut off or added to", size, stored.bytes));
  std::vector<std::byte> piece(std::min(stored.header_bytes, kChunkBytes));
  std::uint32_t digest = 0;
  for (std::uint64_t at = 0; at < stored.header_bytes; at += piece.size()) {
    const auto part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), stored.header_bytes - at));
    TUTTI_TRY(read_all(fd.get(), at, part, path));
    digest = crc32c(part, digest);
  }
  if (digest != stored.header_crc32c) return changed_header(fd.get(), path, stored, digest);
  return std::move(fd);
}

void make_room_for_files(std::size_t count) {
  constexpr std::size_t kOthers = 512;  // what else the process has open
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count + kOthers) return;
  limit.rlim_cur = std::min<rlim_t>(count + kOthers, limit.rlim_max);
  (void)::setrlimit(RLIMIT_NOFILE, &limit);  // where that is too few, the file that cannot be opened is named
}

Result<std::vector<std::string>> checkpoints_at(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::error_code error;
  const bool is_one = fs::exists(path + "/" + kManifestName, error);
  const bool is_named_so = step_of_folder(fs::path(path).filename().string()).has_value();
  if (is_one || is_named_so) return std::vector<std::string>{path};
  if (fs::is_regular_file(path, error)) {
    const bool of_one = fs::exists(fs::path(path).replace_filename(kManifestName), error);
    return Error{.code = Code::kNotFound,
                 .detail = fmt::format("{} is a file, and a checkpoint is a folder", path),
                 .hint = of_one
                             ? fmt::format("give the folder that it is in: {}", fs::path(path).parent_path().string())
                             : "tutti ckpt import makes a checkpoint of the files of other programs"};
  }
  const auto found = TUTTI_TRY(list_checkpoints(path));
  if (found.empty())
    return Error{.code = Code::kNotFound,
                 .detail = fmt::format("there is no checkpoint in {}", path),
                 .hint = "give a folder with step-... folders in it, or one of those"};
  std::vector<std::string> paths;
  for (const CheckpointFolder& one : found) paths.insert(paths.begin(), one.path);
  return paths;
}

}  // namespace tutti
