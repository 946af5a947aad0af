#include "tutti/data/clicks/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tutti/base/log.h"
#include "tutti/data/clicks/trace_profile.h"

namespace tutti {
namespace {

class TraceBags : public BagLaw {
 public:
  TraceBags(std::vector<TraceProfile> profiles, std::vector<std::int64_t> rows, bool padding)
      : profiles_(std::move(profiles)), rows_(std::move(rows)) {
    for (const TraceProfile& profile : profiles_) generators_.emplace_back(profile, padding);
  }

  void draw(NumpyRandom& random, std::size_t table, std::int64_t size, std::vector<std::int64_t>& rows) override {
    const auto begin = std::ptrdiff_t(rows.size());
    generators_[table].restart();
    for (std::int64_t i = 0; i < size; ++i) rows.push_back(generators_[table].next(random));
    std::sort(rows.begin() + begin, rows.end());
    rows.erase(std::unique(rows.begin() + begin, rows.end()), rows.end());
    if (rows.back() >= rows_[table])
      for (auto row = rows.begin() + begin; row != rows.end(); ++row) *row %= rows_[table];
  }
  void skip(NumpyRandom& random, std::int64_t size) override { random.skip_uniform(std::uint64_t(size)); }

 private:
  const std::vector<TraceProfile> profiles_;
  std::vector<std::int64_t> rows_;
  std::vector<TraceGenerator> generators_;
};

}  // namespace

std::string trace_file_of(const std::string& pattern, std::size_t table) {
  const auto is_letter = [&](std::size_t at) { return at < pattern.size() && std::isalpha(std::uint8_t(pattern[at])); };
  const std::size_t name = pattern.rfind('/') + 1;
  for (std::size_t at = pattern.size(); at-- > name;) {
    if (pattern[at] == 'j' && !is_letter(at + 1) && (at == name || !is_letter(at - 1)))
      return pattern.substr(0, at) + std::to_string(table) + pattern.substr(at + 1);
  }
  return pattern;
}

Result<std::unique_ptr<ClickSource>> make_synthetic_clicks(const SyntheticClickOptions& options) {
  std::vector<TraceProfile> profiles;
  for (std::size_t table = 0; table < options.shape.rows.size(); ++table) {
    const std::string path = trace_file_of(options.trace_file, table);
    profiles.push_back(TUTTI_TRY(read_trace_profile(path)));
    const auto largest = *std::max_element(profiles.back().lines.begin(), profiles.back().lines.end());
    if (largest >= options.shape.rows[table])
      log::warn(fmt::format("{} has lines up to {}, and table {} has {} rows: lines are taken modulo its rows", path,
                            largest, table, options.shape.rows[table]));
  }
  return make_drawn_clicks(options,
                           std::make_unique<TraceBags>(std::move(profiles), options.shape.rows, options.padding));
}

}  // namespace tutti
