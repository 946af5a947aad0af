#include <fmt/format.h>
#include <fnmatch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>

#include "apps/options/help_text.h"
#include "apps/tutti/ckpt/commands.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/launch/exit_codes.h"

namespace tutti::cli {
namespace {

Result<std::uint64_t> bound(const std::string& text, std::uint64_t otherwise) {
  if (text.empty()) return otherwise;
  return std::uint64_t(TUTTI_TRY(whole_number("--box", text, 0, std::numeric_limits<std::int64_t>::max())));
}

}  // namespace

void dress(CLI::App& app, const char* footer, const char* synopsis) {
  set_help(app, footer, synopsis);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

int end_of(const CLI::App& app, const Result<int>& code) {
  if (code.ok()) return *code;
  report(app.get_name(), code.error());
  return launch::exit_code_of(code.error().code);
}

void warn_of_skipped(const std::string& path, const std::vector<SkippedObject>& skipped) {
  constexpr std::size_t kMostNamed = 20;
  if (skipped.empty()) return;
  std::vector<std::string> texts;
  for (const auto& [place, type, tensors] : std::span(skipped).first(std::min(skipped.size(), kMostNamed)))
    texts.push_back(tensors == 0 ? fmt::format("{} ({})", sanitize_line(place), type)
                                 : fmt::format("{} ({}, with {} tensor{})", sanitize_line(place), type, tensors,
                                               tensors == 1 ? "" : "s"));
  if (skipped.size() > kMostNamed) texts.push_back(fmt::format("and {} more", skipped.size() - kMostNamed));
  log::warn(fmt::format("{}: skipped {} that {} not read: {}", path,
                        skipped.size() == 1 ? "1 object" : fmt::format("{} objects", skipped.size()),
                        skipped.size() == 1 ? "is" : "are", join(texts, ", ")));
}

Result<std::unique_ptr<TensorSource>> open_source(const std::string& path) { return open_source(std::span(&path, 1)); }
Result<std::unique_ptr<TensorSource>> open_source(std::span<const std::string> paths) {
  auto source = TUTTI_TRY(open_tensors(paths));
  warn_of_skipped(source->path(), source->skipped());
  return source;
}

std::string text_of(const TensorKey& key) { return key.state.empty() ? key.name : key.name + "/" + key.state; }

Result<std::vector<TensorKey>> choose_tensors(const TensorSource& source, const std::vector<std::string>& patterns) {
  std::vector<bool> used(patterns.size());
  std::vector<TensorKey> chosen;
  std::vector<std::string> names;
  for (const auto& [key, tensor] : source.tensors()) {
    names.push_back(text_of(key));
    bool wanted = patterns.empty();
    for (std::size_t p = 0; p < patterns.size(); ++p) {
      if (patterns[p] != names.back() && ::fnmatch(patterns[p].c_str(), names.back().c_str(), 0) != 0) continue;
      wanted = used[p] = true;
    }
    if (wanted) chosen.push_back(key);
  }
  for (std::size_t p = 0; p < patterns.size(); ++p)
    if (!used[p])
      return Error{.code = Code::kNotFound,
                   .detail = fmt::format("{} has no tensor {}", source.path(), patterns[p]),
                   .hint = did_you_mean(nearest(patterns[p], names), "tutti ckpt ls lists them")};
  return chosen;
}

Result<TensorBox> parse_box(const std::string& text, const TensorShape& shape) {
  const auto ranges = text.empty() ? std::vector<std::string>() : split(text, ',');
  TensorBox box = TensorBox::whole(shape);
  if (ranges.size() > shape.size())
    return usage(fmt::format("--box {} has {} ranges; the tensor is {}", text, ranges.size(), shape_text(shape)));
  for (std::size_t d = 0; d < ranges.size(); ++d) {
    const auto ends = split(trim(ranges[d]), ':');
    if (ends.size() != 2)
      return usage(fmt::format("--box needs a range for each dimension, such as 0:10,:; given: {}", text));
    box.begin[d] = TUTTI_TRY(bound(ends[0], 0));
    const std::uint64_t end = TUTTI_TRY(bound(ends[1], shape[d]));
    if (box.begin[d] > end) return usage(fmt::format("--box {}: the range {} ends before it begins", text, ranges[d]));
    if (end > shape[d]) return usage(fmt::format("--box {} is not inside of {}", text, shape_text(shape)));
    box.extent[d] = end - box.begin[d];
  }
  return box;
}

ByteProgress::ByteProgress(std::string doing) : doing_(std::move(doing)) {}

BytesDone ByteProgress::callback() {
  return [this](std::uint64_t done, std::uint64_t all) {
    const double seconds = std::max(1e-6, seconds_since(begin_));
    progress_.show(doing_, all == 0 ? 1 : double(done) / double(all),
                   fmt::format(", {}/s", bytes_text(std::uint64_t(double(done) / seconds))));
  };
}

std::string ByteProgress::summary(std::uint64_t bytes) const {
  const double seconds = std::max(1e-6, seconds_since(begin_));
  return fmt::format("{} in {}, {}/s", bytes_text(bytes), seconds_text(seconds),
                     bytes_text(std::uint64_t(double(bytes) / seconds)));
}

}  // namespace tutti::cli
