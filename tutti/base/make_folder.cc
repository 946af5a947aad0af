// Of a link that leads nowhere the system says "File exists", and of a file in the middle of a path not which part it
// is. So where a folder cannot be made, its path is looked at part by part.
#include "tutti/base/make_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// Where a link leads in the end.
fs::path end_of_links(fs::path path) {
  constexpr int kMost = 40;  // as Linux follows
  std::error_code error;
  for (int links = 0; links < kMost && fs::is_symlink(path, error); ++links)
    path = (path.parent_path() / fs::read_symlink(path, error)).lexically_normal();
  return path;
}

// What is in the way at this part of the path, and what to do.
std::optional<Error> obstacle(const std::string& folder, const fs::path& part) {
  std::error_code error;
  const fs::file_type behind = fs::status(part, error).type();
  if (behind == fs::file_type::directory) return {};
  const auto cannot = [&](const std::string& why, std::string hint) {
    return invalid_argument(fmt::format("cannot make the folder {}: {}", folder, why), std::move(hint));
  };
  if (!fs::is_symlink(part, error))
    return cannot(fmt::format("{} is there, and is no folder", part.string()),
                  "give another folder, or move what is there away");
  const std::string end = end_of_links(part).string();
  if (behind == fs::file_type::not_found)
    return cannot(fmt::format("{} is a link to {}, which is not there", part.string(), end),
                  fmt::format("make {}, give another folder, or remove the link", end));
  return cannot(fmt::format("{} is a link to {}, which is no folder", part.string(), end),
                "give another folder, or remove the link");
}

std::optional<Error> first_obstacle(const std::string& folder) {
  fs::path path;
  for (const fs::path& part : fs::path(folder)) {
    path /= part;
    std::error_code error;
    if (!fs::exists(fs::symlink_status(path, error))) return {};
    if (auto found = obstacle(folder, path)) return found;
  }
  return {};
}

}  // namespace

Status make_folder(const std::string& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (!failure && fs::is_directory(folder, failure)) return {};
  if (auto found = first_obstacle(folder)) return *std::move(found);
  return system_error(failure.value(), fmt::format("cannot make the folder {}", folder),
                      "give a folder that is there, or in a place where this user may make one");
}

}  // namespace tutti
