#include "tutti/data/clicks/day_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "tutti/base/text.h"

namespace tutti {
namespace {

struct DayFile {
  std::string before, after, path;
  std::int64_t day;
};

std::optional<DayFile> parse(const std::string& path) {
  constexpr const char* kDigits = "0123456789";
  const std::size_t name = path.rfind('/') + 1, last = path.find_last_of(kDigits);
  if (last == std::string::npos || last < name) return std::nullopt;
  const std::size_t before = path.find_last_not_of(kDigits, last);
  const std::size_t first = before == std::string::npos ? 0 : before + 1;
  const auto day = parse_int(path.substr(first, last + 1 - first));
  if (!day) return std::nullopt;
  return DayFile{.before = path.substr(name, std::max(first, name) - name),
                 .after = path.substr(last + 1),
                 .path = path,
                 .day = *day};
}

}  // namespace

Result<std::vector<std::string>> in_order_of_days(std::vector<std::string> paths) {
  std::vector<DayFile> files;
  for (const std::string& path : paths) {
    auto file = parse(path);
    if (!file) return paths;
    if (file->after == ".gz") file->after.clear();
    if (!files.empty() && std::tie(file->before, file->after) != std::tie(files[0].before, files[0].after))
      return paths;
    files.push_back(*std::move(file));
  }
  std::stable_sort(files.begin(), files.end(), [](const DayFile& a, const DayFile& b) { return a.day < b.day; });
  for (std::size_t i = 1; i < files.size(); ++i) {
    const DayFile &a = files[i - 1], &b = files[i];
    if (a.day == b.day)
      return invalid_argument(fmt::format("{} and {} are the same day", a.path, b.path), "give each day once");
    if (a.day + 1 != b.day)
      return invalid_argument(fmt::format("{}{} is missing between {} and {}", a.before, a.day + 1, a.path, b.path),
                              "give all days, or files with other names to skip days");
  }
  for (std::size_t i = 0; i < files.size(); ++i) paths[i] = files[i].path;
  return paths;
}

}  // namespace tutti
