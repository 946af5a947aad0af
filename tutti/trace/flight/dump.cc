// Lines of JSON rather than one value: they are written and read one by one, `grep` and `jq` work on them, and a file
// that was cut still shows how far it goes.
#include "tutti/trace/flight/dump.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "tutti/base/env.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"

namespace tutti::trace {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "tutti flight record";
constexpr int kVersion = 1;
constexpr int kMostDumpRanks = 1000000;  // a damaged file may promise more
constexpr const char* kStates[] = {"scheduled", "started", "completed", "failed"};

// Names of groups and files are the user's, and any bytes.
std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json header_of(const FlightDump& dump) {
  Json groups = Json::array();
  for (const FlightGroup& group : dump.groups)
    groups.push_back({{"name", group.name},
                      {"id", group.id},
                      {"rank", group.rank},
                      {"left", group.left},
                      {"global_ranks", group.global_ranks}});
  return {{"format", kFormat},
          {"version", kVersion},
          {"job", dump.job},
          {"rank", dump.rank},
          {"host", dump.host},
          {"pid", dump.pid},
          {"world_size", dump.world_size},
          {"reasons", dump.reasons},
          {"failed", dump.failed},
          {"written", dump.written},
          {"wall", dump.wall},
          {"monotonic", dump.monotonic},
          {"groups", std::move(groups)},
          {"operations", dump.operations.size()}};
}

std::string quoted(const std::string& text) {
  const auto is_plain = [](unsigned char c) { return c >= ' ' && c < 127 && c != '"' && c != '\\'; };
  if (std::all_of(text.begin(), text.end(), is_plain)) return '"' + text + '"';
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// By hand: a Json for each of 2,000 lines takes ten times as long, while a rank that has failed waits.
void add_line(std::string& text, const FlightOperation& o) {
  const auto out = std::back_inserter(text);
  const auto add_text = [&](const char* key, const std::string& value) {
    if (!value.empty()) fmt::format_to(out, ",\"{}\":{}", key, quoted(value));
  };
  const auto add_time = [&](const char* key, std::int64_t value) {
    if (value != 0) fmt::format_to(out, ",\"{}\":{}", key, value);
  };
  fmt::format_to(out, R"({{"group":{},"sequence":{},"state":"{}","call":{},"kind":{},"dtype":{},"count":{},"bytes":{})",
                 o.group, o.sequence, name(o.state), quoted(o.call), quoted(o.kind), quoted(o.dtype), o.count, o.bytes);
  if (o.exchange) fmt::format_to(out, R"(,"exchange":true,"tag":{})", o.tag);
  if (o.root >= 0) fmt::format_to(out, ",\"{}\":{}", o.exchange ? "peer" : "root", o.root);
  add_text("op", o.op);
  add_text("way", o.way);
  add_time("scheduled", o.scheduled);
  add_time("started", o.started);
  add_time("ended", o.ended);
  add_text("site", o.site);
  text += "}\n";
}

// A whole number that fits: nlohmann's own conversion takes 1e35 for an int.
template <class T>
void read_whole(const Json& json, T& to) {
  if (json.is_number_unsigned() && std::in_range<T>(json.get<std::uint64_t>()))
    to = T(json.get<std::uint64_t>());
  else if (json.is_number_integer() && !json.is_number_unsigned() && std::in_range<T>(json.get<std::int64_t>()))
    to = T(json.get<std::int64_t>());
  else
    throw std::out_of_range("not a whole number, or too large");
}
template <class T>
void read_whole_if_there(const Json& json, const char* key, T& to) {
  if (json.contains(key)) read_whole(json.at(key), to);
}

// Throws nlohmann's exceptions where a field is missing or of another type, and read_whole()'s.
FlightDump header_from(const Json& json) {
  FlightDump dump;
  json.at("job").get_to(dump.job);
  read_whole(json.at("rank"), dump.rank);
  read_whole(json.at("world_size"), dump.world_size);
  json.at("host").get_to(dump.host);
  read_whole(json.at("pid"), dump.pid);
  json.at("reasons").get_to(dump.reasons);
  json.at("failed").get_to(dump.failed);
  json.at("written").get_to(dump.written);
  json.at("wall").get_to(dump.wall);
  read_whole(json.at("monotonic"), dump.monotonic);
  for (const Json& from : json.at("groups")) {
    FlightGroup group;
    from.at("name").get_to(group.name);
    read_whole(from.at("id"), group.id);
    read_whole(from.at("rank"), group.rank);
    from.at("left").get_to(group.left);
    for (const Json& rank : from.at("global_ranks")) read_whole(rank, group.global_ranks.emplace_back());
    dump.groups.push_back(std::move(group));
  }
  return dump;
}

FlightOperation operation_from(const Json& json) {
  FlightOperation o;
  read_whole(json.at("group"), o.group);
  read_whole(json.at("sequence"), o.sequence);
  const std::string state = json.at("state");
  const auto found = std::find(std::begin(kStates), std::end(kStates), state);
  if (found == std::end(kStates)) throw std::out_of_range("no state");
  o.state = FlightOperation::State(found - std::begin(kStates));
  json.at("call").get_to(o.call);
  json.at("kind").get_to(o.kind);
  json.at("dtype").get_to(o.dtype);
  read_whole(json.at("count"), o.count);
  read_whole(json.at("bytes"), o.bytes);
  o.exchange = json.value("exchange", false);
  read_whole_if_there(json, "tag", o.tag);
  o.op = json.value("op", "");
  read_whole_if_there(json, o.exchange ? "peer" : "root", o.root);
  o.way = json.value("way", "");
  read_whole_if_there(json, "scheduled", o.scheduled);
  read_whole_if_there(json, "started", o.started);
  read_whole_if_there(json, "ended", o.ended);
  o.site = json.value("site", "");
  return o;
}

Error corrupt(std::string detail) { return Error{.code = Code::kCorrupt, .detail = std::move(detail)}; }

// Checks what the rest of the code takes for granted.
Status check(const FlightDump& dump) {
  if (dump.world_size < 1 || dump.world_size > kMostDumpRanks || dump.rank < 0 || dump.rank >= dump.world_size)
    return corrupt(fmt::format("says that it is of rank {} of {}", dump.rank, dump.world_size));
  for (const FlightGroup& group : dump.groups) {
    const auto is_no_rank = [&](int rank) { return rank < 0 || rank >= dump.world_size; };
    if (std::any_of(group.global_ranks.begin(), group.global_ranks.end(), is_no_rank) || group.rank < 0 ||
        std::size_t(group.rank) >= group.global_ranks.size() ||
        group.global_ranks[std::size_t(group.rank)] != dump.rank)
      return corrupt(fmt::format("has a group \"{}\" with invalid ranks", group.name));
  }
  for (const FlightOperation& operation : dump.operations)
    if (operation.group < 0 || std::size_t(operation.group) >= dump.groups.size() || operation.sequence == 0)
      return corrupt("has an operation of a group that it does not have");
  return {};
}

}  // namespace

const char* name(FlightOperation::State state) { return kStates[std::size_t(state)]; }

std::string to_text(const FlightDump& dump) {
  std::string text = line_of(header_of(dump));
  for (const FlightOperation& operation : dump.operations) add_line(text, operation);
  return text;
}

Result<FlightDump> parse_flight_dump(const std::string& text) {
  const std::vector<std::string> lines = split(text, '\n');
  const Json first = Json::parse(lines[0], nullptr, false);
  if (!first.is_object() || !first.contains("format") || first["format"] != kFormat)
    return corrupt("is not a flight record of tutti");
  if (!first.contains("version") || first["version"] != kVersion)
    return corrupt(fmt::format("is a flight record of another version of tutti (this one reads version {})", kVersion));
  try {
    FlightDump dump = header_from(first);
    std::size_t promised = 0;
    read_whole(first.at("operations"), promised);
    for (std::size_t i = 1; i <= promised; ++i) {
      const Json json = i < lines.size() ? Json::parse(lines[i], nullptr, false) : Json();
      if (!json.is_object())
        return corrupt(fmt::format("is truncated or damaged: {} of its {} operations can be read", i - 1, promised));
      dump.operations.push_back(operation_from(json));
    }
    TUTTI_TRY(check(dump));
    return dump;
  } catch (const std::exception&) {  // nlohmann's, and ours for a state
    return corrupt("is damaged: it lacks required fields");
  }
}

// ---- files and folders ----
//
// Ranks of several runs may write into one folder, and a rank that was killed leaves
// the file of an earlier run where its own should be; so a folder is read as the record of one job only, the one that
// wrote last, and runtime/ puts a rank's older file aside before it starts.

namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "flight-rank";
constexpr const char* kSuffix = ".json";
constexpr const char* kPreviousSuffix = ".previous.json";  // of an attempt that was followed by another

std::string temporary_folder() { return env("TMPDIR").value_or("/tmp"); }

// None: it is no file of ours.
std::optional<int> rank_of_file(std::string_view name, std::string_view suffix = kSuffix) {
  if (!name.starts_with(kPrefix) || !name.ends_with(suffix)) return {};
  name.remove_prefix(std::string_view(kPrefix).size());
  name.remove_suffix(suffix.size());
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

// By its name alone: TMPDIR may have changed since it was asked for.
bool is_default(const std::string& folder) {
  const std::string begin = fs::path(default_flight_folder("")).filename();
  return fs::path(folder).filename().string().starts_with(begin);
}

// Under /tmp anybody may have made a folder of this name, and would read, or lead elsewhere, what is written there.
Status check_own(const std::string& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0) return system_error(errno, fmt::format("cannot look at {}", folder));
  if (S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & 022) == 0) return {};
  return Error{
      .code = Code::kRefused,
      .detail = fmt::format("{} is not a folder of this user alone, so no flight record is written there", folder),
      .hint = "set TUTTI_FLIGHT_DIR"};
}

}  // namespace

Status make_flight_folder(const std::string& folder) {
  if (is_default(folder)) {
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
      return system_error(errno, fmt::format("cannot make the folder {}", folder), "set TUTTI_FLIGHT_DIR");
    return check_own(folder);
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return system_error(error.value(), fmt::format("cannot make the folder {}", folder));
  return {};
}

bool is_own_flight_folder(const std::string& folder) {
  std::error_code ignored;
  return is_default(folder) ? check_own(folder).ok() : fs::is_directory(folder, ignored);
}

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
  std::vector<std::string> paths, previous;
  for (const std::string& folder : folders) {
    std::error_code error;
    for (auto at = fs::directory_iterator(folder, error); !error && at != fs::directory_iterator();
         at.increment(error)) {
      const std::string name = at->path().filename();
      if (rank_of_file(name)) paths.push_back(at->path());
      if (rank_of_file(name, kPreviousSuffix)) previous.push_back(at->path());
    }
    if (error == std::errc::no_such_file_or_directory)
      return Error{.code = Code::kNotFound,
                   .detail = fmt::format("there is no folder {}", folder),
                   .hint =
                       "ranks make it when they write their first record: TUTTI_FLIGHT_DIR of the job, or what "
                       "their log line says"};
    if (error == std::errc::not_a_directory)
      return Error{.code = Code::kUsage,
                   .detail = fmt::format("{} is a file, not a folder with the records of all ranks", folder),
                   .hint = rank_of_file(fs::path(folder).filename().string())
                               ? fmt::format("tutti flight {}", folder_of(folder))
                               : "tutti flight DIR, where the job's flight-rank0.json, ... are"};
    if (error) return system_error(error.value(), fmt::format("cannot list the folder {}", folder));
  }
  if (paths.empty() && !previous.empty()) {
    paths = std::move(previous);
    files.problems.push_back("no rank has written a record since the last start; these are of the one before it");
  }
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) {
    auto dump = read_flight_file(path);
    if (dump.ok())
      found.emplace_back(path, *std::move(dump));
    else
      files.problems.push_back(fmt::format("{} {}", path, dump.error().detail)), files.damaged = true;
  }
  if (paths.empty())
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
      files.problems.push_back(fmt::format("{} is of another job ({}, {} ranks, written {}) and is skipped", path,
                                           dump.job, dump.world_size, dump.written));
    else if (twice)
      files.problems.push_back(fmt::format("{} is an older record of rank {} and is skipped", path, dump.rank));
    else
      files.dumps.push_back(std::move(dump));
  }
  std::sort(files.dumps.begin(), files.dumps.end(),
            [](const FlightDump& a, const FlightDump& b) { return a.rank < b.rank; });
  return files;
}

}  // namespace tutti::trace
