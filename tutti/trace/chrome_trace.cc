// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("Trace Event Format"): complete
// events (ph X) with times in microseconds, and metadata events (ph M) that name processes and threads. The process
// number of a rank is the rank, so that the rows stand in its order whatever the hosts called them.
#include "tutti/trace/chrome_trace.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

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
        thread.left_out > 0 ? fmt::format(" ({} regions left out)", thread.left_out) : std::string();
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

}  // namespace tutti
