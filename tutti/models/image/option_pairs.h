#pragma once
// The table of train_image's options that exclude each other, by the names of the command line.
#include <span>

#include "tutti/base/error.h"
#include "tutti/base/option_pairs.h"
#include "tutti/models/image/train.h"

namespace tutti {

std::span<const NamedOption<ImageTrainingOptions>> image_options();
std::span<const ExcludedPair> image_pairs();
// kUsage, if both options of a pair are given.
Status check_pairs(const ImageTrainingOptions& options);

}  // namespace tutti
