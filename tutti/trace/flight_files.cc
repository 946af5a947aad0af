// Where the records of a job lie. Ranks of several runs may write into one folder, and a rank that was killed leaves
// the file of an earlier run where its own should be; so a folder is read as the record of one job only, the one that
// wrote last, and runtime/ puts a rank's older file aside before it starts.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "tutti/base/env.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/trace/flight/dump.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "flight-rank";
constexpr const char* kSuffix = ".json";

std::string temporary_folder() { return env("TMPDIR").value_or("/tmp"); }

// None: it is no file of ours, or one that was put aside.
std::optional<int> rank_of_file(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return {};
  name.remove_prefix(std::string_view(kPrefix).size());
  name.remove_suffix(std::string_view(kSuffix).size());
  const auto rank = parse_int(name);
  return rank && *rank >= 0 && *rank <= std::numeric_limits<int>::max() ? std::optional(int(*rank)) : std::nullopt;
}

std::string folder_of(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  return folder.empty() ? "." : folder.string();
}

Result<FlightDump> read_flight_file(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored))
    return Error{.code = Code::kUnsupported, .detail = "is a folder, a pipe or a device"};
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  if (!file) return system_error(errno, "cannot be read");
  return parse_flight_dump(std::move(bytes).str());
}

}  // namespace

std::string flight_file_name(int rank) { return fmt::format("{}{}{}", kPrefix, rank, kSuffix); }

std::string default_flight_folder(const std::string& job) {
  std::string name = job.substr(0, 100);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  return fmt::format("{}/tutti-flight-{}-{}", temporary_folder(), ::geteuid(), name);
}

Result<std::string> write_flight_dump(const FlightDump& dump, const std::string& folder) {
  TUTTI_TRY(make_flight_folder(folder));
  const std::string path = folder + "/" + flight_file_name(dump.rank);
  TUTTI_TRY(write_new_file(path, to_text(dump)));
  return path;
}

std::vector<int> ranks_with_flight_files(const std::string& folder, std::chrono::system_clock::time_point since) {
  std::vector<int> ranks;
  if (!is_own_flight_folder(folder)) return ranks;
  std::error_code error;
  for (auto at = fs::directory_iterator(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    const auto rank = rank_of_file(at->path().filename().string());
    struct stat info {};
    if (!rank || ::stat(at->path().c_str(), &info) != 0) continue;
    const auto written = std::chrono::seconds(info.st_mtim.tv_sec) + std::chrono::nanoseconds(info.st_mtim.tv_nsec);
    if (written >= since.time_since_epoch()) ranks.push_back(*rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

Result<FlightFiles> read_flight_folders(const std::vector<std::string>& folders) {
  FlightFiles files;
  std::vector<std::pair<std::string, FlightDump>> found;
  bool any = false;
  for (const std::string& folder : folders) {
    std::error_code error;
    std::vector<std::string> paths;
    for (auto at = fs::directory_iterator(folder, error); !error && at != fs::directory_iterator(); at.increment(error))
      if (rank_of_file(at->path().filename().string())) paths.push_back(at->path());
    if (error == std::errc::no_such_file_or_directory)
      return Error{.code = Code::kNotFound,
                   .detail = fmt::format("there is no folder {}", folder),
                   .hint =
                       "ranks make it when they write their first record: TUTTI_FLIGHT_DIR of the job, or what "
                       "their log line says"};
    if (error == std::errc::not_a_directory)
      return Error{
          .code = Code::kUsage,
          .detail = fmt::format("{} is a file, and not the folder that the records of all ranks lie in", folder),
          .hint = rank_of_file(fs::path(folder).filename().string())
                      ? fmt::format("tutti flight {}", folder_of(folder))
                      : "tutti flight DIR, where the job's flight-rank0.json, ... are"};
    if (error) return system_error(error.value(), fmt::format("cannot list the folder {}", folder));
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
      any = true;
      auto dump = read_flight_file(path);
      if (dump.ok())
        found.emplace_back(path, *std::move(dump));
      else
        files.problems.push_back(fmt::format("{} {}", path, dump.error().detail)), files.damaged = true;
    }
  }
  if (!any)
    return Error{
        .code = Code::kNotFound,
        .detail = fmt::format("there is no flight record (flight-rank0.json, ...) in {}", fmt::join(folders, ", ")),
        .hint = "ranks write them when their job fails, or at SIGUSR2"};
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.second.wall > b.second.wall; });
  for (auto& [path, dump] : found) {
    const FlightDump& last = files.dumps.empty() ? dump : files.dumps.front();
    const bool twice = std::any_of(files.dumps.begin(), files.dumps.end(),
                                   [rank = dump.rank](const FlightDump& other) { return other.rank == rank; });
    if (dump.job != last.job || dump.world_size != last.world_size)
      files.problems.push_back(fmt::format("{} is of another job ({}, {} ranks, written {}) and is left out", path,
                                           dump.job, dump.world_size, dump.written));
    else if (twice)
      files.problems.push_back(fmt::format("{} is an older record of rank {} and is left out", path, dump.rank));
    else
      files.dumps.push_back(std::move(dump));
  }
  std::sort(files.dumps.begin(), files.dumps.end(),
            [](const FlightDump& a, const FlightDump& b) { return a.rank < b.rank; });
  return files;
}

}  // namespace tutti
