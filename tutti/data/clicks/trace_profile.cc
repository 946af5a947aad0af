// A stack of lines, the one accessed last on top, gives the distances; searching it would take time with its depth. The
// profiler instead keeps a mark at the time of each line's last access: the distance of an access is the number of
// marks from there on, which a Fenwick tree over the times counts in logarithmic time.
//
// The generator follows the reference draw for draw. While fewer lines have been accessed than the largest distance,
// the law is cut to the distances that exist by now.
#include "tutti/data/clicks/trace_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <unordered_map>

#include "tutti/base/text.h"
#include "tutti/data/placed_file.h"

namespace tutti {
namespace {

class MarkCounter {
 public:
  explicit MarkCounter(std::size_t places) : sums_(places + 1) {}
  void add(std::size_t place, std::int64_t amount) {
    total_ += amount;
    for (std::size_t i = place + 1; i < sums_.size(); i += i & -i) sums_[i] += amount;
  }
  std::int64_t from(std::size_t place) const {
    std::int64_t before = 0;
    for (std::size_t i = place; i > 0; i -= i & -i) before += sums_[i];
    return total_ - before;
  }

 private:
  std::vector<std::int64_t> sums_;
  std::int64_t total_ = 0;
};

Error corrupt_profile(std::string detail) { return {.code = Code::kCorrupt, .detail = std::move(detail)}; }

std::string shortened(std::string_view text) {
  return text.size() > 40 ? std::string(text.substr(0, 40)) + "..." : std::string(text);
}

template <class T, class Parse>
Result<std::vector<T>> numbers_of(std::string_view line, int number, const char* what, const Parse& parse) {
  std::vector<T> values;
  for (const std::string& word : split(line, ',')) {
    const std::optional<T> value = parse(trim(word));
    if (!value)
      return corrupt_profile(fmt::format("line {} ({}): value {} is '{}', which is no such number", number, what,
                                         values.size() + 1, shortened(word)));
    values.push_back(*value);
  }
  return values;
}

Status check(const TraceProfile& profile) {
  const auto& [lines, distances, cumulative] = profile;
  if (std::any_of(lines.begin(), lines.end(), [](std::int64_t line) { return line < 0; }))
    return corrupt_profile("line 1 (unique accesses): a line is negative");
  if (distances.size() != cumulative.size())
    return corrupt_profile(fmt::format("line 2 has {} stack distances and line 3 has {} probabilities",
                                       distances.size(), cumulative.size()));
  for (std::size_t i = 0; i < distances.size(); ++i) {
    if (i == 0 ? distances[i] != 0 : distances[i] <= distances[i - 1])
      return corrupt_profile(
          fmt::format("line 2 (stack distances): value {} is {}, but they ascend from 0", i + 1, distances[i]));
    const double before = i == 0 ? 0 : cumulative[i - 1];
    if (!(cumulative[i] >= before && cumulative[i] < 1 + 1e-6))
      return corrupt_profile(
          fmt::format("line 3 (cumulative probabilities): value {} is {}, but they ascend from above 0 to 1", i + 1,
                      cumulative[i]));
  }
  if (distances.back() > std::int64_t(lines.size()))
    return corrupt_profile(
        fmt::format("the largest stack distance is {}, but there are only {} lines", distances.back(), lines.size()));
  if (!(cumulative.back() > 1 - 1e-6) || !(cumulative[0] > 0))
    return corrupt_profile(
        fmt::format("line 3 (cumulative probabilities): they go from {} to {}, not from above 0 to 1", cumulative[0],
                    cumulative.back()));
  return {};
}

Result<std::string> read_text(const std::string& path) {
  const PlacedFile file = TUTTI_TRY(PlacedFile::open(path));
  std::string text(TUTTI_TRY(file.size()), '\0');
  TUTTI_TRY(file.read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

template <class T>
Result<T> name_file(Result<T> result, const std::string& path) {
  if (result.ok() || result.error().code != Code::kCorrupt) return result;
  Error error = result.error();
  error.detail = fmt::format("{}: {}", path, error.detail);
  return error;
}

}  // namespace

TraceProfile profile_trace(std::span<const std::int64_t> trace, bool padding) {
  TraceProfile profile;
  std::map<std::int64_t, std::int64_t> counts;
  std::unordered_map<std::int64_t, std::size_t> last_access;
  MarkCounter marks(trace.size());
  for (std::size_t now = 0; now < trace.size(); ++now) {
    const auto [entry, is_new] = last_access.try_emplace(trace[now], now);
    if (is_new) {
      profile.lines.push_back(trace[now]);
      ++counts[0];
    } else {
      ++counts[marks.from(entry->second)];
      marks.add(entry->second, -1);
      entry->second = now;
    }
    marks.add(now, 1);
  }
  auto accesses = std::int64_t(trace.size());
  const std::int64_t largest = counts.rbegin()->first;
  if (padding && largest > 0) {
    const std::int64_t added = (accesses + largest - 1) / largest;
    counts[0] += added;
    accesses += added;
  }
  double sum = 0;
  for (const auto& [distance, count] : counts) {
    profile.distances.push_back(distance);
    profile.cumulative.push_back(sum += double(count) / double(accesses));
  }
  return profile;
}

std::int64_t TraceGenerator::distance(double draw) const {
  const auto& [lines, distances, cumulative] = profile_;
  if (std::int64_t(new_accesses_) < distances.back()) {
    const auto above = std::upper_bound(distances.begin(), distances.end(), std::int64_t(new_accesses_));
    draw *= cumulative[std::size_t(above - distances.begin()) - 1];
  } else if (padding_) {
    draw = (1 - cumulative[0]) * draw + cumulative[0];
  }
  const auto found = std::lower_bound(cumulative.begin(), cumulative.end(), draw);
  return distances[std::min(std::size_t(found - cumulative.begin()), distances.size() - 1)];
}

std::int64_t TraceGenerator::next(NumpyRandom& random) {
  const auto from_top = std::size_t(distance(random.uniform()));
  std::int64_t line;
  if (from_top == 0 && new_accesses_ < profile_.lines.size()) {
    line = profile_.lines[new_accesses_];
  } else {  // all have been accessed: the one for which it is longest ago counts as new
    const std::size_t place = from_top == 0 ? 0 : stack_.size() - from_top;
    line = stack_[place];
    stack_.erase(stack_.begin() + std::ptrdiff_t(place));
  }
  if (from_top == 0) ++new_accesses_;
  stack_.push_back(line);
  return line;
}

std::string to_text(std::span<const std::int64_t> trace) { return fmt::format("{}", fmt::join(trace, ", ")); }

std::string to_binary(std::span<const std::int64_t> trace) {
  return {reinterpret_cast<const char*>(trace.data()), trace.size_bytes()};
}

std::string to_text(const TraceProfile& profile) {
  return fmt::format("{}\n{}\n{}\n", fmt::join(profile.lines, ", "), fmt::join(profile.distances, ", "),
                     fmt::join(profile.cumulative, ", "));
}

Result<TraceProfile> parse_trace_profile(std::string_view text) {
  std::vector<std::string> lines = split(text, '\n');
  while (!lines.empty() && trim(lines.back()).empty()) lines.pop_back();
  if (lines.size() != 3)
    return corrupt_profile(fmt::format(
        "a profile has 3 lines (unique accesses, stack distances, cumulative probabilities), not {}", lines.size()));
  TraceProfile profile;
  profile.lines = TUTTI_TRY(numbers_of<std::int64_t>(lines[0], 1, "unique accesses", parse_int));
  profile.distances = TUTTI_TRY(numbers_of<std::int64_t>(lines[1], 2, "stack distances", parse_int));
  profile.cumulative = TUTTI_TRY(numbers_of<double>(lines[2], 3, "cumulative probabilities", parse_double));
  TUTTI_TRY(check(profile));
  return profile;
}

Result<TraceProfile> read_trace_profile(const std::string& path) {
  return name_file(parse_trace_profile(TUTTI_TRY(read_text(path))), path);
}

Result<std::vector<std::int64_t>> parse_trace(std::string_view text) {
  constexpr std::string_view kSeparators = ", \t\r\n";
  std::vector<std::int64_t> trace;
  for (std::size_t at = 0; (at = text.find_first_not_of(kSeparators, at)) != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    const auto value = parse_int(text.substr(at, end - at));
    if (!value || *value < 0)
      return corrupt_profile(fmt::format("access {} (byte {}) is '{}', which is no line of a table", trace.size() + 1,
                                         at, shortened(text.substr(at, end - at))));
    trace.push_back(*value);
    at = end;
  }
  if (trace.empty()) return corrupt_profile("there is no access in it");
  return trace;
}

Result<std::vector<std::int64_t>> read_trace(const std::string& path, bool binary) {
  const std::string bytes = TUTTI_TRY(read_text(path));
  if (!binary) return name_file(parse_trace(bytes), path);
  if (bytes.empty() || bytes.size() % 8 != 0)
    return corrupt_profile(fmt::format("{}: {} bytes are not a number of 64-bit accesses", path, bytes.size()));
  std::vector<std::int64_t> trace(bytes.size() / 8);
  std::memcpy(trace.data(), bytes.data(), bytes.size());
  const auto bad = std::find_if(trace.begin(), trace.end(), [](std::int64_t line) { return line < 0; });
  if (bad != trace.end())
    return corrupt_profile(fmt::format("{}: access {} is {}, which is no line of a table", path,
                                       bad - trace.begin() + 1, std::uint64_t(*bad)));
  return trace;
}

}  // namespace tutti
