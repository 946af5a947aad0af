// The columns are those of nccl-tests: algbw is bytes / time, busbw is algbw times the operation's factor, which makes
// figures of different operations and numbers of ranks comparable with what the wire or the memory can do.
#include "bench/collectives/report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tutti/base/text.h"

namespace tutti::bench {
namespace {

// A message there and back is two operations.
double legs(const Operation& operation) { return operation.form == Form::kPingPong ? 2 : 1; }

double algorithm_bandwidth(const Operation& operation, const Figure& f) {
  return f.us > 0 ? double(f.bytes) * legs(operation) / (f.us * 1e3) : 0;
}

double share_of_limit(const Operation& operation, const Figure& f) {
  return f.us > 0 ? f.limit_us * legs(operation) / f.us : 0;
}

std::string limit_cell(const Operation& operation, const Figure& f) {
  return f.limit_us > 0 ? fmt::format("{:.0f} %", 100 * share_of_limit(operation, f)) : "";
}

std::string peer_name(const Circumstances& where) {
  return where.engine == "tutti" ? "tutti" : "tutti over " + where.engine;
}

double rounded(double value) { return std::round(value * 1000) / 1000; }

}  // namespace

std::string json_line(const Operation& operation, const Circumstances& where, const Figure& f) {
  const double algbw = algorithm_bandwidth(operation, f);
  nlohmann::ordered_json line = {{"peer", peer_name(where)},
                                 {"op", operation.name},
                                 {"ranks", where.ranks},
                                 {"bytes", f.bytes},
                                 {"us", rounded(f.us)},
                                 {"us_min", rounded(f.us_min)},
                                 {"p50_us", rounded(f.p50_us)},
                                 {"p99_us", rounded(f.p99_us)},
                                 {"max_us", rounded(f.max_us)},
                                 {"algbw", rounded(algbw)},
                                 {"busbw", rounded(algbw * operation.bus_factor(where.ranks))}};
  if (f.limit_us > 0) {
    line["limit_us"] = rounded(f.limit_us * legs(operation));
    line["of_limit"] = rounded(share_of_limit(operation, f));
  }
  line.update(nlohmann::ordered_json{{"wrong", f.wrong},
                                     {"allocations", rounded(f.allocations)},
                                     {"plan", f.plan},
                                     {"dtype", where.dtype},
                                     {"reduction", where.op},
                                     {"memory", where.memory},
                                     {"rewrite", where.rewrite},
                                     {"groups", where.groups},
                                     {"hosts", where.hosts}});
  return line.dump() + "\n";
}

std::string json_not_measured(const Operation& operation, const Circumstances& where, const std::string& why) {
  const nlohmann::ordered_json line = {
      {"peer", peer_name(where)}, {"op", operation.name}, {"ranks", where.ranks}, {"not_measured", why}};
  return line.dump() + "\n";
}

std::string table_head(const Operation& operation, const Circumstances& where) {
  std::string words = fmt::format("{}, {} rank{}", operation.name, where.ranks, where.ranks == 1 ? "" : "s");
  if (where.groups > 1) words += fmt::format(" in each of {} groups at once", where.groups);
  if (where.hosts > 1) words += fmt::format(" on {} hosts", where.hosts);
  words += fmt::format(", {}{}, {} memory{}, ranks {}", where.dtype, operation.reduces() ? ", " + where.op : "",
                       where.memory, where.rewrite ? " rewritten before every call" : "",
                       where.pinned ? "pinned to cores" : "not pinned");
  if (where.engine != "tutti") words += ", over " + where.engine;
  const auto line = [](auto... cells) {
    return fmt::format("{:>10}  {:<18}{:>12}{:>12}{:>12}{:>12}{:>9}{:>9}{:>10}{:>7}\n", cells...);
  };
  return words + "\n" + line("bytes", "plan", "us", "min", "p50", "p99", "algbw", "busbw", "of limit", "wrong") +
         line("", "", "", "", "", "", "GB/s", "GB/s", "", "");
}

std::string table_row(const Operation& operation, const Circumstances& where, const Figure& f) {
  const double algbw = algorithm_bandwidth(operation, f);
  return fmt::format("{:>10}  {:<18}{:>12.2f}{:>12.2f}{:>12.2f}{:>12.2f}{:>9.2f}{:>9.2f}{:>10}{:>7}\n", f.bytes, f.plan,
                     f.us, f.us_min, f.p50_us, f.p99_us, algbw, algbw * operation.bus_factor(where.ranks),
                     limit_cell(operation, f), f.wrong);
}

std::string verdict(const Operation& operation, const Circumstances& where, const Figure& last, std::size_t wrong) {
  std::string words = std::string("verdict: ") + operation.name;
  if (operation.has_bytes()) words += " of " + bytes_text(last.bytes);
  words += " takes " + seconds_text(last.us * 1e-6);
  if (last.limit_us > 0)
    words += fmt::format(", {:.0f} % of what the {} (at best {})", 100 * share_of_limit(operation, last),
                         where.hosts > 1 ? "wire gives, one stream of TCP" : "memory gives, a += k * b on all cores",
                         seconds_text(last.limit_us * legs(operation) * 1e-6));
  if (last.allocations > 0) words += fmt::format("; {:.3g} allocations of memory in a call", last.allocations);
  return words + (wrong == 0 ? "; all results right\n" : fmt::format("; {} ELEMENTS WERE WRONG\n", wrong));
}

}  // namespace tutti::bench
