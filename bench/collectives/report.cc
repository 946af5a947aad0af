// The columns are those of nccl-tests: algbw is bytes / time, busbw is algbw times the operation's factor, which makes
// figures of different operations and numbers of ranks comparable with what the wire or the memory can do.
#include "bench/collectives/report.h"

#include <fmt/format.h>

#include "tutti/base/text.h"

namespace tutti::bench {
namespace {

double gigabytes_per_second(const Figure& figure) { return double(figure.bytes) / (figure.us * 1e3); }

}  // namespace

std::string json_line(const Operation& operation, int ranks, const Figure& f) {
  return fmt::format(
      R"({{"peer":"tutti","op":"{}","ranks":{},"bytes":{},"us":{:.3f},"us_min":{:.3f},"plan":"{}","p99_us":{:.3f},"max_us":{:.3f},"wrong":{}}})"
      "\n",
      operation.name, ranks, f.bytes, f.us, f.us_min, f.plan, f.p99_us, f.max_us, f.wrong);
}

std::string table_head(const Operation& operation, int ranks, const std::string& circumstances) {
  return fmt::format(
      "{}, {} rank{}, {}\n{:>10}  {:<18}{:>12}{:>12}{:>12}{:>10}{:>10}{:>8}\n{:>10}  "
      "{:<18}{:>12}{:>12}{:>12}{:>10}{:>10}{:>8}\n",
      operation.name, ranks, ranks == 1 ? "" : "s", circumstances, "bytes", "plan", "us", "min", "p99", "algbw",
      "busbw", "wrong", "", "", "", "", "", "GB/s", "GB/s", "");
}

std::string table_row(const Operation& operation, int ranks, const Figure& f) {
  const double algbw = gigabytes_per_second(f);
  return fmt::format("{:>10}  {:<18}{:>12.2f}{:>12.2f}{:>12.2f}{:>10.2f}{:>10.2f}{:>8}\n", f.bytes, f.plan, f.us,
                     f.us_min, f.p99_us, algbw, algbw * operation.bus_factor(ranks), f.wrong);
}

std::string verdict(const Operation& operation, const Figure& f, double copy) {
  return fmt::format(
      "verdict: {} of {} takes {}, {:.2f} times as long as a memcpy of as many bytes by every rank at once ({}, {:.1f} "
      "GB/s a rank)\n",
      operation.name, bytes_text(f.bytes), seconds_text(f.us * 1e-6), f.us * 1e-6 / copy, seconds_text(copy),
      double(f.bytes) / copy * 1e-9);
}

}  // namespace tutti::bench
