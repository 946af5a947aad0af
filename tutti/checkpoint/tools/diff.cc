#include "tutti/checkpoint/tools/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tutti/checkpoint/tools/elements.h"

namespace tutti {
namespace {

constexpr int kMostThreads = 8;

std::string place_text(const TensorBox& box, std::uint64_t element) {
  TensorShape at = box.begin;
  for (std::size_t d = at.size(); d > 0; --d) {
    at[d - 1] += element % box.extent[d - 1];
    element /= box.extent[d - 1];
  }
  return shape_text(at);
}

double distance(double first, double second) {
  if (first == second || (std::isnan(first) && std::isnan(second))) return 0;
  if (std::isnan(first) || std::isnan(second)) return std::numeric_limits<double>::infinity();
  return std::abs(first - second);
}

class Comparing {
 public:
  Comparing(const SourceTensor& tensor, TensorDifference& into, double tolerance)
      : tensor_(tensor), into_(into), tolerance_(tolerance), numbers_(numbers_of(tensor.dtype)) {}

  void add(const TensorBox& box, const std::byte* first, const std::byte* second) {
    const std::uint64_t count = box.elements(), element = tensor_.element_bytes;
    if (std::memcmp(first, second, count * element) == 0) return;
    if (!into_.is_numeric) {
      for (std::uint64_t i = 0; i < count; ++i)
        into_.differing += std::memcmp(first + i * element, second + i * element, element) != 0;
      return;
    }
    a_.resize(count * numbers_);
    b_.resize(count * numbers_);
    to_doubles(tensor_.dtype, first, count, a_.data());
    to_doubles(tensor_.dtype, second, count, b_.data());
    for (std::uint64_t i = 0; i < count; ++i) {
      bool differs = false;
      for (std::uint64_t n = i * numbers_; n < (i + 1) * numbers_; ++n) {
        double far = distance(a_[n], b_[n]);
        // Whole numbers of 64 bits may differ where their nearest doubles do not.
        if (far == 0 && std::memcmp(first + i * element, second + i * element, element) != 0 && is_wide()) far = 1;
        if (!(far > tolerance_)) continue;
        differs = true;
        if (far <= into_.largest) continue;
        into_.largest = far;
        into_.at = place_text(box, i);
        into_.first = a_[n];
        into_.second = b_[n];
      }
      into_.differing += differs;
    }
  }

 private:
  bool is_wide() const { return tensor_.dtype == "I64" || tensor_.dtype == "U64"; }

  const SourceTensor& tensor_;
  TensorDifference& into_;
  const double tolerance_;
  const std::uint64_t numbers_;
  std::vector<double> a_, b_;
};

void flatten(const ValueTree& tree, const std::string& path, std::map<std::string, std::string>& out) {
  if (tree.kind == ValueTree::Kind::kLeaf && tree.value) out[path] = tree.text;
  for (const ValueTree& member : tree.members)
    flatten(member, path.empty() ? member.name : path + "." + member.name, out);
}

std::vector<std::string> different_values(const TensorSource& first, const TensorSource& second) {
  std::map<std::string, std::string> a, b;
  flatten(first.about(), "", a);
  flatten(second.about(), "", b);
  for (const auto& [path, text] : a) b.try_emplace(path, "nothing");
  std::vector<std::string> out;
  for (const auto& [path, text] : b) {
    const auto other = a.find(path);
    const std::string before = other == a.end() ? "nothing" : other->second;
    if (before != text) out.push_back(fmt::format("{}: {} and {}", path, before, text));
  }
  return out;
}

}  // namespace

Result<DiffReport> diff_tensors(const TensorSource& first, const TensorSource& second, double tolerance,
                                const BytesDone& tell) {
  DiffReport report;
  std::vector<TensorDifference> common;
  std::uint64_t bytes = 0;
  for (const auto& [key, tensor] : first.tensors()) {
    const SourceTensor* const other = second.find(key);
    if (!other) {
      report.only_first.push_back(to_string(key));
    } else if (other->dtype != tensor.dtype || other->shape != tensor.shape) {
      report.misshapen.push_back(fmt::format("{} is {}{} and {}{}", to_string(key), tensor.dtype,
                                             shape_text(tensor.shape), other->dtype, shape_text(other->shape)));
    } else {
      common.push_back({.key = key, .elements = tensor.elements(), .at = {}, .is_numeric = is_numeric(tensor.dtype)});
      bytes += tensor.elements() * tensor.element_bytes;
    }
  }
  for (const auto& [key, tensor] : second.tensors())
    if (!first.find(key)) report.only_second.push_back(to_string(key));
  if (first.format() == second.format()) report.values = different_values(first, second);

  SharedProgress progress(bytes, tell);
  TUTTI_TRY(in_parallel(kMostThreads, common.size(), [&](std::size_t t) -> Status {
    const SourceTensor& tensor = *first.find(common[t].key);
    const auto a = TUTTI_TRY(first.stream(common[t].key));
    const auto b = TUTTI_TRY(second.stream(common[t].key));
    std::vector<std::byte> of_a(kPieceBytes), of_b(kPieceBytes);
    Comparing comparing(tensor, common[t], tolerance);
    return for_each_piece(TensorBox::whole(tensor.shape), kPieceBytes / tensor.element_bytes,
                          [&](const TensorBox& piece) -> Status {
                            TUTTI_TRY(a->read(piece, of_a.data()));
                            TUTTI_TRY(b->read(piece, of_b.data()));
                            comparing.add(piece, of_a.data(), of_b.data());
                            progress.add(piece.elements() * tensor.element_bytes);
                            return {};
                          });
  }));
  for (TensorDifference& one : common) {
    if (one.differing == 0) {
      ++report.equal;
    } else {
      report.different.push_back(std::move(one));
    }
  }
  return report;
}

}  // namespace tutti
