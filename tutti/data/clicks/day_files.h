#pragma once
// Files that are a day each, day_0 to day_23 for example.
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

// Files whose names differ only in a number (the last one in the name) in the order of that number: a shell lists
// day_10 before day_2. Other files stay as they were given. kInvalidArgument: a number is missing between the least and
// the largest, or is there twice.
Result<std::vector<std::string>> in_order_of_days(std::vector<std::string> paths);

}  // namespace tutti
