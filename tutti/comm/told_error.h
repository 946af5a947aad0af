#pragma once
// An error as a rank tells it to the others of its group, as JSON.
#include <string>

#include "tutti/base/error.h"

namespace tutti {

std::string encode_told(const Error& error);
// As rank `rank` told it, with its name in the sentence. What cannot be understood is an error too: kInternal.
Error decode_told(const std::string& text, int rank);

}  // namespace tutti
