// A rank may put anything at the path of its error file: a pipe without a writer, a link to /dev/zero, 50 MB. The agent
// reads the file after the rank's death, on its only thread, so nothing there may block it or take its memory.
#include "tutti/launch/output/error_files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tutti/base/env.h"
#include "tutti/base/fd.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/launch/output/traceback.h"
#include "tutti/rendezvous/job_secret.h"

namespace tutti::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostRead = 1 << 20;
constexpr std::size_t kLongest = 2000;  // of a message
constexpr const char* kErrorFiles = "errors.";

// Left by a launcher that was killed together with its supervisor.
void remove_leftovers(const std::string& folder) {
  std::error_code error;
  for (auto at = fs::directory_iterator(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    const auto parts = split(at->path().filename().string(), '.');  // errors.PID.rank_0.json
    const auto launcher = parts.size() < 3 || parts[0] + "." != kErrorFiles ? std::nullopt : parse_int(parts[1]);
    std::error_code ignored;
    if (launcher && *launcher > 0 && ::kill(pid_t(*launcher), 0) != 0 && errno == ESRCH)
      fs::remove_all(at->path(), ignored);
  }
}

struct Beginning {
  std::string text;
  std::uint64_t size = 0;  // of the whole file
};

Beginning read_beginning(const std::string& path) {
  const auto file = open_file(path, O_NONBLOCK | O_NOFOLLOW);
  struct stat info {};
  if (!file.ok() || ::fstat(file->get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  Beginning read{.text = std::string(std::min(std::size_t(info.st_size), kMostRead), '\0'),
                 .size = std::uint64_t(info.st_size)};
  if (!read_all(file->get(), 0, std::as_writable_bytes(std::span(read.text)), path)) return {};
  return read;
}

// The traceback that record() of torchelastic writes; empty: none.
std::string call_stack(const nlohmann::json& message) {
  const auto extra = message.is_object() ? message.find("extraInfo") : message.end();
  if (extra == message.end() || !extra->is_object()) return {};
  const auto stack = extra->find("py_callstack");
  return stack != extra->end() && stack->is_string() ? stack->get<std::string>() : std::string();
}

// The message() of the last traceback in the text; empty: there is none.
std::string message_of_traceback(std::string_view text) {
  Traceback traceback;
  for (const std::string& line : split(text, '\n')) traceback.add(line);
  return sanitize(traceback.message());
}

std::string shortened(std::string_view text, std::uint64_t size) {
  if (size <= kLongest && text.size() <= kLongest) return sanitize(text);
  return sanitize(text.substr(0, kLongest)) + " ... (" + bytes_text(std::max<std::uint64_t>(size, text.size())) +
         " in all)";
}

}  // namespace

std::string error_files_prefix() {
  const auto folder = rendezvous::runtime_directory(current_environment());
  if (!folder.ok()) return "";
  remove_leftovers(*folder);
  return *folder + "/" + kErrorFiles + std::to_string(::getpid()) + ".";
}

void remove_error_files(const std::string& prefix) {
  if (prefix.empty()) return;
  std::error_code error;
  for (auto at = fs::directory_iterator(fs::path(prefix).parent_path(), error);
       !error && at != fs::directory_iterator(); at.increment(error)) {
    std::error_code ignored;  // another process may have removed it
    if (at->path().string().starts_with(prefix)) fs::remove_all(at->path(), ignored);
  }
}

bool write_error_file(const std::string& message) {
  const auto path = env("TORCHELASTIC_ERROR_FILE");
  if (!path) return false;
  // The timestamp: torchrun takes the earliest failure for the cause.
  const nlohmann::json record = {
      {"message", {{"message", message}, {"extraInfo", {{"timestamp", std::to_string(std::time(nullptr))}}}}}};
  const std::string text = record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const Fd file(::open(path->c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666));
  return file && ::write(file.get(), text.data(), text.size()) == ssize_t(text.size());
}

std::string error_file_message(const std::string& path) {
  const Beginning file = read_beginning(path);
  const std::string_view text = trim(file.text);
  if (text.empty()) return {};
  const auto json = is_shallow_json(text) ? nlohmann::json::parse(text) : nlohmann::json();
  const auto bounded = [](std::string_view said, std::uint64_t size) {
    const std::string message = message_of_traceback(said);
    return message.empty() ? shortened(said, size) : message;
  };
  if (!json.is_object()) return bounded(text, file.size);
  const auto message = json.find("message");
  if (message == json.end()) return {};
  if (const std::string stack = message_of_traceback(call_stack(*message)); !stack.empty()) return stack;
  const auto inner = message->is_object() ? message->find("message") : message->end();
  const nlohmann::json& said = inner != message->end() && inner->is_string() ? *inner : *message;
  using Json = nlohmann::json;
  return bounded(said.is_string() ? said.get<std::string>() : said.dump(-1, ' ', false, Json::error_handler_t::replace),
                 0);
}

bool is_shallow_json(std::string_view text) {
  constexpr int kDeepest = 100;
  bool too_deep = false;
  const auto keep = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    too_deep |= depth > kDeepest;
    return depth <= kDeepest;
  };
  return !nlohmann::json::parse(text, keep, false).is_discarded() && !too_deep;
}

}  // namespace tutti::launch
