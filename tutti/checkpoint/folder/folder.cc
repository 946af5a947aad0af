// What makes a checkpoint is its name. Until the rename it is called .step-0000100.partial, and one that is to go is
// renamed to .step-0000100.removed before its first file is taken away: so a folder that has a proper name is whole,
// whenever a process is killed. Who makes a draft, or removes, has the folder (folder_lock.h): so what has one of those
// other names at that moment is nobody's any more, and goes.
#include "tutti/checkpoint/folder/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "tutti/base/fd.h"
#include "tutti/base/file.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPartial = ".partial";
constexpr const char* kRemoved = ".removed";

std::string removed_name(const std::string& path) {
  const fs::path at(path);
  return (at.parent_path() / ("." + at.filename().string() + kRemoved)).string();
}

void warn_if(const std::error_code& error, const std::string& what) {
  if (error) log::warn(to_string(system_error(error.value(), what)));
}

void remove_all(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error == std::errc::directory_not_empty) fs::remove_all(path, error);  // a file came after it was listed
  warn_if(error, fmt::format("cannot remove {}", path));
}

void remove_leftovers(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool of_a_step = name.starts_with(".step-") && (name.ends_with(kPartial) || name.ends_with(kRemoved));
    if (of_a_step || name.starts_with(".probe-")) remove_all(at->path().string());
  }
}

// Puts `draft` in the place of `path`; what was there goes. Where the file system cannot exchange two names there is a
// moment in which neither has the name, and a process that is killed then leaves the older checkpoints.
Status take_place(const std::string& draft, const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (::rename(draft.c_str(), path.c_str()) == 0) return {};
    return system_error(errno, fmt::format("cannot rename {} to {}", draft, path));
  }
  const std::string old = removed_name(path);
  if (::renameat2(AT_FDCWD, draft.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) {
    remove_all(draft);
    return {};
  }
  if (::rename(path.c_str(), old.c_str()) != 0 || ::rename(draft.c_str(), path.c_str()) != 0)
    return system_error(errno, fmt::format("cannot put {} in the place of {}", draft, path));
  remove_all(old);
  return {};
}

// Not through a link, should one have this name: what it leads to is none of ours.
Status write_latest(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/latest", fresh = folder + "/.latest.partial";
  if (::unlink(fresh.c_str()) != 0 && errno != ENOENT)
    return system_error(errno, fmt::format("cannot remove {}", fresh));
  const Fd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd) return system_error(errno, fmt::format("cannot create {}", fresh));
  const std::string text = name + "\n";
  TUTTI_TRY(write_all(fd.get(), std::as_bytes(std::span(text)), fresh));
  if (::fsync(fd.get()) != 0) return system_error(errno, fmt::format("cannot flush {}", fresh));
  if (::rename(fresh.c_str(), path.c_str()) != 0)
    return system_error(errno, fmt::format("cannot rename {} to {}", fresh, path));
  return {};  // which of two steps it names after a power cut decides nothing
}

}  // namespace

std::string checkpoint_folder_name(std::int64_t step) { return fmt::format("step-{:07}", step); }

std::optional<std::int64_t> step_of_folder(const std::string& name) {
  const auto step = name.starts_with("step-") ? parse_int(std::string_view(name).substr(5)) : std::nullopt;
  return step && *step >= 0 && name == checkpoint_folder_name(*step) ? step : std::nullopt;
}

Result<std::vector<CheckpointFolder>> list_checkpoints(const std::string& folder) {
  std::vector<CheckpointFolder> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (const auto step = step_of_folder(at->path().filename().string())) found.push_back({*step, at->path().string()});
  }
  if (error) {
    Error unread = system_error(error.value(), fmt::format("cannot read the folder {}", folder));
    if (error.value() == ENOENT || error.value() == ENOTDIR) unread.code = Code::kNotFound;
    return unread;
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

std::vector<CheckpointFolder> beyond(const std::vector<CheckpointFolder>& found, const KeepRule& keep) {
  std::vector<CheckpointFolder> out;
  if (keep.last <= 0) return out;
  for (std::size_t i = 0; i + std::size_t(keep.last) < found.size(); ++i)
    if (keep.every <= 0 || found[i].step % keep.every != 0) out.push_back(found[i]);
  return out;
}

Status remove_checkpoint(const std::string& path) {
  const std::string removed = removed_name(path);
  std::error_code error;
  fs::rename(path, removed, error);
  if (!error) fs::remove_all(removed, error);
  return error ? system_error(error.value(), fmt::format("cannot remove {}", path)) : Status();
}

std::string CheckpointDraft::path_of(const std::string& folder, std::int64_t step) {
  return fmt::format("{}/.{}{}", folder, checkpoint_folder_name(step), kPartial);
}

CheckpointDraft::CheckpointDraft(std::string folder, std::int64_t step)
    : folder_(std::move(folder)), path_(path_of(folder_, step)), step_(step) {}

CheckpointDraft::CheckpointDraft(CheckpointDraft&& other) noexcept
    : folder_(std::move(other.folder_)), path_(std::exchange(other.path_, {})), step_(other.step_) {}

// A rank that has not yet heard that the save failed may still create files. It finds no folder of the draft's name.
CheckpointDraft::~CheckpointDraft() {
  if (path_.empty()) return;
  const std::string removed = removed_name(folder_ + "/" + checkpoint_folder_name(step_));
  remove_all(::rename(path_.c_str(), removed.c_str()) == 0 ? removed : path_);
}

Result<CheckpointDraft> CheckpointDraft::create(const std::string& folder, std::int64_t step) {
  TUTTI_TRY(make_folder(folder));
  remove_leftovers(folder);
  CheckpointDraft draft(folder, step);
  if (::mkdir(draft.path_.c_str(), 0777) != 0) {
    const Error failed = system_error(errno, fmt::format("cannot make the folder {}", draft.path_));
    draft.path_.clear();
    return failed;
  }
  return draft;
}

Status CheckpointDraft::commit(const KeepRule& keep) {
  const std::string name = checkpoint_folder_name(step_);
  TUTTI_TRY(sync_folder(path_));
  TUTTI_TRY(take_place(path_, folder_ + "/" + name));
  path_.clear();
  TUTTI_TRY(sync_folder(folder_));
  const Status latest = write_latest(folder_, name);
  if (!latest.ok()) log::warn(fmt::format("{} is saved, but: {}", name, to_string(latest.error())));
  if (keep.last > 0) prune(keep);
  return {};
}

void CheckpointDraft::prune(const KeepRule& keep) const {
  auto found = list_checkpoints(folder_);
  if (!found.ok()) return log::warn(to_string(found.error()));
  std::erase_if(*found, [&](const CheckpointFolder& one) { return one.step > step_; });
  for (const CheckpointFolder& one : beyond(*found, keep))
    if (const Status removed = remove_checkpoint(one.path); !removed.ok()) log::warn(to_string(removed.error()));
}

}  // namespace tutti
