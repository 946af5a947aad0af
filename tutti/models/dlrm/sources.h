#pragma once
// The data that the options name, for training and for testing.
#include <memory>
#include <string>

#include "tutti/data/clicks/source.h"
#include "tutti/models/dlrm/options.h"

namespace tutti::dlrm {

struct Sources {
  std::unique_ptr<ClickSource> train, test;
  std::string where;  // for errors: the file, or what says the shape
};

// Opens or makes them. kUsage, or what the source says of its file.
Result<Sources> open_sources(const Options& options);

}  // namespace tutti::dlrm
