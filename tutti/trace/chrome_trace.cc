// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("Trace Event Format"): complete
// events (ph X) with times in microseconds, and metadata events (ph M) that name processes and threads. The process
// number of a rank is the rank, so that the rows stand in its order whatever the hosts called them.
#include "tutti/trace/chrome_trace.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "tutti/base/fd.h"
#include "tutti/base/file.h"
#include "tutti/base/gzip.h"

namespace tutti {
namespace {

std::string json_string(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

double microseconds(Duration duration) { return double(duration.count()) / 1e3; }

std::string metadata(const char* what, int rank, int thread, const std::string& arguments) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}})", what, rank, thread, arguments);
}

}  // namespace

std::string chrome_events(const Trace& trace, const TraceRank& rank, Clock::time_point origin) {
  const std::string place = rank.host.empty() ? "" : " on " + rank.host;
  std::string out =
      metadata("process_name", rank.rank, 0, "\"name\":" + json_string(fmt::format("rank {}{}", rank.rank, place)));
  out += ",\n" + metadata("process_sort_index", rank.rank, 0, fmt::format("\"sort_index\":{}", rank.rank));
  std::vector<std::string> heads;  // of the events of each name
  for (const RegionTotals& totals : trace.totals) {
    const std::string detail = totals.detail.empty() ? "" : ",\"args\":{\"detail\":" + json_string(totals.detail) + "}";
    heads.push_back(
        fmt::format(R"({{"ph":"X","cat":"region","name":{}{},"pid":{})", json_string(totals.name), detail, rank.rank));
  }
  const Duration shift = trace.begin - origin + rank.clock_offset;
  for (const ThreadEvents& thread : trace.threads) {
    const std::string left_out =
        thread.left_out > 0 ? fmt::format(" ({} regions skipped)", thread.left_out) : std::string();
    out += ",\n" + metadata("thread_name", rank.rank, thread.id, "\"name\":" + json_string(thread.name + left_out));
    for (const RegionEvent& event : thread.events)
      out += fmt::format(",\n{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f}}}", heads[event.which], thread.id,
                         microseconds(event.begin + shift), microseconds(event.took));
  }
  return out;
}

std::string chrome_trace_head(std::span<const TraceRank> ranks, double wall_clock_of_0) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"tutti\"";
  for (const TraceRank& rank : ranks)
    out += fmt::format(R"(,"clock of rank {}":"moved by {:.3f} us, at most {:.3f} us wrong")", rank.rank,
                       microseconds(rank.clock_offset), microseconds(rank.clock_error));
  if (wall_clock_of_0 > 0) out += fmt::format(R"(,"{}":{:.6f})", kWallClockOf0, wall_clock_of_0);
  return out + "},\"traceEvents\":[\n";
}

std::string chrome_trace(const Trace& trace, int rank) {
  const TraceRank alone{.rank = rank};
  return chrome_trace_head(std::span(&alone, 1), trace.wall_clock) + chrome_events(trace, alone, trace.begin) +
         kChromeTraceTail;
}

// ---- several files become one ----

namespace {

using TraceJson = nlohmann::json;

constexpr std::size_t kMostBytes = std::size_t(4) << 30;  // of a file

constexpr int kDeepest = 100;  // what walks a value does so on the stack, a frame for each value within a value

// The first byte that lies deeper; none: the text's size. What is no JSON is for the parser to tell.
std::size_t first_too_deep(const std::string& text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char byte = text[i];
    if (in_string) {
      if (byte == '\\') ++i;
      in_string = byte != '"';
    } else if (byte == '"') {
      in_string = true;
    } else if (byte == '[' || byte == '{') {
      if (++depth > kDeepest) return i;
    } else if (byte == ']' || byte == '}') {
      --depth;
    }
  }
  return text.size();
}

// The whole file, uncompressed.
Result<std::string> read_text(const std::string& path) {
  constexpr std::size_t kPart = std::size_t(1) << 20;
  MaybeGzipFile file = TUTTI_TRY(MaybeGzipFile::open(path));
  std::string text;
  for (std::size_t got = kPart; got == kPart;) {
    if (text.size() > kMostBytes)
      return Error{.code = Code::kLimit, .detail = fmt::format("{} has more than {} bytes", path, kMostBytes)};
    const std::size_t begin = text.size();
    text.resize(begin + kPart);
    const auto part = file.read(std::span(reinterpret_cast<std::uint8_t*>(text.data()) + begin, kPart));
    if (!part.ok()) return Error{.code = part.error().code, .detail = path + ": " + part.error().detail};
    got = *part;
    text.resize(begin + got);
  }
  if (file.cut_off()) return Error{.code = Code::kCorrupt, .detail = path + " ends within its compressed data"};
  return text;
}

// One file's JSON with a list of events; an error says what it is instead.
Result<TraceJson> read_trace(const std::string& path) {
  const std::string text = TUTTI_TRY(read_text(path));
  if (const auto at = first_too_deep(text); at < text.size())
    return Error{
        .code = Code::kCorrupt,
        .detail = fmt::format("{} is not a Chrome trace: byte {} nests more than {} deep", path, at, kDeepest)};
  TraceJson file = TraceJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (file.is_array()) file = TraceJson{{"traceEvents", std::move(file)}};  // the format's other form
  if (file.is_discarded() || !file.is_object() || !file.contains("traceEvents") || !file["traceEvents"].is_array())
    return Error{.code = Code::kCorrupt, .detail = path + " is not a Chrome trace: it has no list traceEvents"};
  return file;
}

// The moment of time 0, in seconds since 1970: in our own traces, or in those of PyTorch 2.x.
std::optional<double> wall_clock_of(const TraceJson& file) {
  if (const auto base = file.find("baseTimeNanoseconds"); base != file.end() && base->is_number())
    return base->get<double>() / 1e9;
  const auto other = file.find("otherData");
  if (other == file.end() || !other->is_object()) return std::nullopt;
  const auto clock = other->find(kWallClockOf0);
  if (clock == other->end() || !clock->is_number()) return std::nullopt;
  return clock->get<double>();
}

// The process numbers of one file, so that none is one of another file's.
class Processes {
 public:
  void next_file() {
    for (const auto& [given, written] : of_this_file_) taken_.insert(written);
    of_this_file_.clear();
  }
  TraceJson written(const TraceJson& pid) {
    const auto [found, fresh] = of_this_file_.try_emplace(pid, pid);
    if (fresh && taken_.count(pid) > 0) {
      while (taken_.count(TraceJson(free_)) > 0) ++free_;
      found->second = free_++;
    }
    return found->second;
  }

 private:
  std::set<TraceJson> taken_;
  std::map<TraceJson, TraceJson> of_this_file_;
  std::int64_t free_ = 1'000'000;
};

class Output {
 public:
  static Result<Output> create(const std::string& path) {
    Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!fd) return system_error(errno, "cannot write " + path);
    return Output(std::move(fd), path);
  }
  Status add(const std::string& text) {
    pending_ += text;
    return pending_.size() < kPiece ? Status() : flush();
  }
  Status flush() {
    const Status written = write_all(fd_.get(), std::as_bytes(std::span(pending_)), path_);
    pending_.clear();
    return written;
  }

 private:
  static constexpr std::size_t kPiece = std::size_t(1) << 20;
  Output(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Fd fd_;
  std::string path_, pending_;
};

}  // namespace

Result<std::vector<std::string>> traces_in(const std::string& folder) {
  std::error_code failure;
  std::vector<std::string> files;
  for (std::filesystem::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure))
    if (const auto& path = entry->path(); path.extension() == ".json" || path.string().ends_with(".json.gz"))
      files.push_back(path.string());
  if (failure) return system_error(failure.value(), "cannot read the folder " + folder);
  std::sort(files.begin(), files.end());
  return files;
}

Result<MergedTrace> merge_traces(const std::vector<std::string>& files, const std::string& output) {
  for (const std::string& path : files) {
    std::error_code ignored;  // one that is not there is no other
    if (std::filesystem::equivalent(path, output, ignored))
      return invalid_argument(path + " is both input and output", "give another output");
  }
  MergedTrace merged;
  std::optional<Output> out;  // made when there is something for it: what lies there may be all that is left of a run
  Processes processes;
  std::optional<double> origin;  // seconds since 1970, of time 0
  TraceJson others = TraceJson::object();
  for (const std::string& path : files) {
    auto read = read_trace(path);
    if (!read.ok()) {
      merged.notes.push_back("skipped: " + to_string(read.error()));
      continue;
    }
    if (!out) {
      out = TUTTI_TRY(Output::create(output));
      TUTTI_TRY(out->add("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"));
    }
    TraceJson& file = *read;
    const auto clock = wall_clock_of(file);
    double shift = 0;  // microseconds
    if (!clock) {
      merged.notes.push_back(path + " has no wall clock: its times are unchanged");
    } else if (origin) {
      shift = (*clock - *origin) * 1e6;
    } else {
      origin = clock;
    }
    for (TraceJson& event : file["traceEvents"]) {
      if (!event.is_object()) continue;
      if (const auto pid = event.find("pid"); pid != event.end()) *pid = processes.written(*pid);
      if (const auto ts = event.find("ts"); shift != 0 && ts != event.end() && ts->is_number())
        *ts = ts->get<double>() + shift;
      TUTTI_TRY(out->add((merged.events++ == 0 ? "" : kChromeTraceComma) +
                         event.dump(-1, ' ', false, TraceJson::error_handler_t::replace)));
    }
    if (const auto other = file.find("otherData"); other != file.end() && other->is_object())
      for (auto& [name, value] : other->items())
        if (!others.contains(name)) others[name] = value;
    processes.next_file();
    ++merged.files;
  }
  if (merged.files == 0) {
    return Error{.code = Code::kNotFound,
                 .detail = fmt::format("none of {} files is a Chrome trace{}", files.size(),
                                       merged.notes.empty() ? "" : "; the first: " + merged.notes.front())};
  }
  TUTTI_TRY(out->add("\n],\"otherData\":" + others.dump(-1, ' ', false, TraceJson::error_handler_t::replace) + "}\n"));
  TUTTI_TRY(out->flush());
  return merged;
}

}  // namespace tutti
