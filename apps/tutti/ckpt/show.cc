// tutti ckpt show: what a file says besides its tensors, or what is in one of these.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>

#include "apps/tutti/ckpt/commands.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/tools/elements.h"

namespace tutti::cli {
namespace in_ckpt_show {
namespace {

constexpr const char* kSynopsis = "tutti ckpt show PATH [OPTIONS]";
constexpr const char* kFooter = R"(
Prints the step of a checkpoint, the scalars of model, optimizer and schedule, the position in the data, and the layout
of the job. --path selects a part of this tree by names with points between them; list items are numbered from 0.

Examples:
  tutti ckpt show runs/a
  tutti ckpt show runs/a --path values.lr
  tutti ckpt show runs/a --tensor fc.weight

Exit codes:
  0  shown
  1  the checkpoint cannot be read
  2  wrong usage, or no such checkpoint)";

struct Statistics {
  double least = std::numeric_limits<double>::infinity(), most = -least, sum = 0, squares = 0;
  std::uint64_t finite = 0, nans = 0, infinities = 0, zeros = 0;

  void add(double value) {
    if (std::isnan(value)) {
      ++nans;
    } else if (std::isinf(value)) {
      ++infinities;
    } else {
      ++finite;
      zeros += value == 0;
      least = std::min(least, value);
      most = std::max(most, value);
      sum += value;
      squares += value * value;
    }
  }
};

Result<std::string> values_text(const TensorSource& source, const TensorKey& key, const SourceTensor& tensor) {
  constexpr std::size_t kFirst = 8;
  if (!is_numeric(tensor.dtype)) return fmt::format("  values of type {} are not shown\n", tensor.dtype);
  const auto stream = TUTTI_TRY(source.stream(key));
  std::vector<std::byte> bytes(kPieceBytes);
  std::vector<double> numbers;
  std::vector<std::string> first;
  Statistics of;
  for (const TensorPart& part : tensor.parts)
    TUTTI_TRY(for_each_piece(part.box, kPieceBytes / tensor.element_bytes, [&](const TensorBox& box) -> Status {
      TUTTI_TRY(stream->read(box, bytes.data()));
      numbers.resize(box.elements() * numbers_of(tensor.dtype));
      to_doubles(tensor.dtype, bytes.data(), box.elements(), numbers.data());
      for (const double number : numbers) {
        of.add(number);
        if (first.size() < kFirst) first.push_back(fmt::format("{:.6g}", number));
      }
      return {};
    }));
  std::string out;
  if (of.finite > 0) {
    const double mean = of.sum / double(of.finite);
    out += fmt::format("  from {:.6g} to {:.6g}, mean {:.6g}, root mean square {:.6g}\n", of.least, of.most, mean,
                       std::sqrt(of.squares / double(of.finite)));
  }
  out += fmt::format("  {} zeros, {} NaN, {} infinite\n", of.zeros, of.nans, of.infinities);
  if (!first.empty()) out += fmt::format("  begins with {}\n", join(first, " "));
  return out;
}

Result<std::string> tensor_text(const TensorSource& source, const TensorKey& key) {
  constexpr std::size_t kMostParts = 64;
  const SourceTensor& tensor = *source.find(key);
  std::string out = fmt::format("{}: {}{}, {}\n", text_of(key), tensor.dtype, shape_text(tensor.shape),
                                bytes_text(tensor.elements() * tensor.element_bytes));
  for (std::size_t p = 0; p < std::min(tensor.parts.size(), kMostParts); ++p)
    out += fmt::format("  {} in {}\n", box_text(tensor.parts[p].box), tensor.parts[p].file);
  if (tensor.parts.size() > kMostParts) out += fmt::format("  and {} boxes more\n", tensor.parts.size() - kMostParts);
  return out + TUTTI_TRY(values_text(source, key, tensor));
}

std::string summary(const TensorSource& source) {
  struct Sum {
    std::size_t tensors = 0;
    std::uint64_t elements = 0, bytes = 0;
  };
  std::map<std::string, Sum> sums;
  for (const auto& [key, tensor] : source.tensors()) {
    Sum& sum = sums[(key.state.empty() ? "tensors " : "states  ") + tensor.dtype];
    ++sum.tensors;
    sum.elements += tensor.elements();
    sum.bytes += tensor.bytes_here();
  }
  std::string out;
  for (const auto& [what, sum] : sums)
    out += fmt::format("{}: {}, {} elements, {}\n", what, sum.tensors, sum.elements, bytes_text(sum.bytes));
  return out;
}

struct Texts {
  std::string file, path;
  std::vector<std::string> tensors;
  bool all = false;
};

Result<int> act(const Texts& texts) {
  constexpr std::size_t kMostMembers = 100;
  if (texts.file.empty()) return not_given("path", kSynopsis, "tutti ckpt show runs/a");
  const auto source = TUTTI_TRY(open_source(texts.file));
  std::string out;
  if (!texts.tensors.empty()) {
    for (const TensorKey& key : TUTTI_TRY(choose_tensors(*source, texts.tensors)))
      out += TUTTI_TRY(tensor_text(*source, key));
  } else {
    const auto found = find_value(source->about(), texts.path);
    if (!found.ok()) {
      Error error = found.error();
      error.detail = fmt::format("{}: {}", source->path(), error.detail);
      return error;
    }
    const ValueTree* const tree = *found;
    if (texts.path.empty()) out += fmt::format("{}: {}\n", source->path(), source->format());
    out += tree_text(*tree, texts.all ? std::numeric_limits<std::size_t>::max() : kMostMembers);
    if (texts.path.empty()) out += summary(*source);
  }
  std::fwrite(out.data(), 1, out.size(), stdout);
  return 0;
}

}  // namespace
}  // namespace in_ckpt_show

int ckpt_show_command(std::vector<std::string> arguments) {
  using namespace in_ckpt_show;
  CLI::App app("Prints the values of a checkpoint, or one of its tensors.", "tutti ckpt show");
  Texts texts;
  dress(app, kFooter, kSynopsis);
  app.add_option("PATH", texts.file, "a folder of checkpoints, one of them, or a file");
  app.add_option("--path", texts.path, "show only this part of the tree: values.lr")->type_name("NAME.NAME");
  app.add_option("--tensor", texts.tensors, "show where a tensor is, its smallest, largest and first values")
      ->type_name("PATTERN")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->allow_extra_args(false);
  app.add_flag("--all", texts.all, "show long lists and dicts whole");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  return end_of(app, act(texts));
}

}  // namespace tutti::cli
