#include "tutti/models/image/option_pairs.h"

#include <fmt/format.h>

namespace tutti {
namespace {

using ImageOptions = ImageTrainingOptions;

constexpr NamedOption<ImageOptions> kImageOptions[] = {
    {"--accumulate", [](const ImageOptions& o) { return o.accumulate > 1; }},
    {"--logical-ranks", [](const ImageOptions& o) { return o.parallel.logical_ranks > 0; }},
    {"--compress", [](const ImageOptions& o) { return o.compression != Compression::kNone; }},
    {"--compress f16", [](const ImageOptions& o) { return o.compression == Compression::kF16; }},
    {"--precision f16", [](const ImageOptions& o) { return o.parallel.autocast == DType::kF16; }},
    {"--check-gradients off", [](const ImageOptions& o) { return o.parallel.finite_check == FiniteCheck::kOff; }},
    {"--views", [](const ImageOptions& o) { return o.parallel.gradients_as_views; }},
    {"--overlap on", [](const ImageOptions& o) { return o.parallel.overlap == Overlap::kOn; }},
    {"--overlap off", [](const ImageOptions& o) { return o.parallel.overlap == Overlap::kOff; }},
    {"--sharded on", [](const ImageOptions& o) { return o.sharding == Sharding::kOn; }},
    {"--sharded on (stage 1)",
     [](const ImageOptions& o) { return o.sharding == Sharding::kOn && o.sharded_stage == 1; }},
    {"--sharded off", [](const ImageOptions& o) { return o.sharding == Sharding::kOff; }},
    {"--stage 2", [](const ImageOptions& o) { return o.sharded_stage > 1; }},
};

constexpr std::string_view kLogicalOrder =
    "leave one of them out: gradients of logical ranks are added in an order of their own";
constexpr std::string_view kNeedsCheck =
    "leave out --check-gradients: gradients overflow in f16, and a step in which they did is skipped";

constexpr ExcludedPair kImagePairs[] = {
    {"--accumulate", "--logical-ranks", "take so many more logical ranks: each is a pass of its own"},
    {"--compress", "--logical-ranks", kLogicalOrder},
    {"--views", "--logical-ranks", kLogicalOrder},
    {"--compress", "--views",
     "leave out --views: averages of compressed gradients may lie elsewhere than in the bucket"},
    {"--compress", "--sharded on", "leave one of them out: a sharded optimizer averages the gradients itself"},
    {"--check-gradients off", "--compress f16", kNeedsCheck},
    {"--check-gradients off", "--precision f16", kNeedsCheck},
    {"--stage 2", "--sharded off", "leave one of them out: stage 2 is a sharded optimizer"},
    {"--stage 2", "--compress",
     "leave one of them out: gradients that a sharded optimizer averages are not compressed"},
    {"--stage 2", "--overlap off",
     "leave one of them out: in stage 2 gradients are averaged while the backward pass makes them"},
    {"--sharded on (stage 1)", "--overlap on",
     "leave one of them out, or take --stage 2: stage 1 averages when the backward pass is over"},
};

}  // namespace

std::span<const NamedOption<ImageTrainingOptions>> image_options() { return kImageOptions; }
std::span<const ExcludedPair> image_pairs() { return kImagePairs; }

Status check_pairs(const ImageTrainingOptions& options) {
  const auto* pair = find_excluded(image_pairs(), image_options(), options);
  if (pair == nullptr) return {};
  return Error{.code = Code::kUsage,
               .detail = fmt::format("{} and {} were both given", pair->one, pair->other),
               .hint = std::string(pair->hint)};
}

}  // namespace tutti
