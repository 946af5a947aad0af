#pragma once
// The options of train_image.
#include <string>

#include "apps/options/option.h"
#include "tutti/data/fashion_mnist.h"
#include "tutti/models/image/train.h"

namespace tutti::cli {

struct TrainImageCommand {
  ImageTrainingOptions training;
  std::string data;
  bool json = false;
};

// The table sets `command`.
OptionTable train_image_options(TrainImageCommand& command);

}  // namespace tutti::cli
