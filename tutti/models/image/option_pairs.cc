#include "tutti/models/image/option_pairs.h"

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
    {"--views", [](const ImageOptions& o) { return o.parallel.gradient_as_bucket_view; }},
    {"--overlap on", [](const ImageOptions& o) { return o.parallel.overlap == Overlap::kOn; }},
    {"--overlap off", [](const ImageOptions& o) { return o.parallel.overlap == Overlap::kOff; }},
    {"--sharded on", [](const ImageOptions& o) { return o.sharding == Sharding::kOn; }},
    {"--sharded on (stage 1)",
     [](const ImageOptions& o) { return o.sharding == Sharding::kOn && o.sharded_stage == 1; }},
    {"--sharded off", [](const ImageOptions& o) { return o.sharding == Sharding::kOff; }},
    {"--stage 2", [](const ImageOptions& o) { return o.sharded_stage > 1; }},
};

constexpr std::string_view kLogicalOrder =
    "drop one of the two: --logical-ranks adds gradients in the order of the logical ranks";
constexpr std::string_view kNeedsCheck =
    "drop --check-gradients: gradients overflow in f16, and a step that overflows is skipped";

constexpr ExcludedPair kImagePairs[] = {
    {"--accumulate", "--logical-ranks",
     "drop --accumulate and raise --logical-ranks: each logical rank is one forward and backward pass"},
    {"--compress", "--logical-ranks", kLogicalOrder},
    {"--views", "--logical-ranks", kLogicalOrder},
    {"--compress", "--views", "drop --views: averages of compressed gradients may be in memory outside the bucket"},
    {"--compress", "--sharded on", "drop one of the two: a sharded optimizer averages the gradients"},
    {"--check-gradients off", "--compress f16", kNeedsCheck},
    {"--check-gradients off", "--precision f16", kNeedsCheck},
    {"--stage 2", "--sharded off", "drop one of the two: stage 2 is a sharded optimizer"},
    {"--stage 2", "--compress", "drop one of the two: gradients that a sharded optimizer averages are not compressed"},
    {"--stage 2", "--overlap off", "drop one of the two: stage 2 averages gradients during the backward pass"},
    {"--sharded on (stage 1)", "--overlap on",
     "drop --overlap on, or give --stage 2: stage 1 averages gradients after the backward pass"},
};

}  // namespace

std::span<const NamedOption<ImageTrainingOptions>> image_options() { return kImageOptions; }
std::span<const ExcludedPair> image_pairs() { return kImagePairs; }

Status check_pairs(const ImageTrainingOptions& options) { return check_pairs(image_pairs(), image_options(), options); }

}  // namespace tutti
