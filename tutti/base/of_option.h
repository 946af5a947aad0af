#pragma once
#include <string>

#include "tutti/base/error.h"

namespace tutti {

// The same, and in front of an error the option of the command line that it is about: "--trace: cannot make the ...".
inline Status of_option(const std::string& option, Status status) {
  if (status.ok()) return status;
  Error error = status.error();
  error.detail = option + ": " + error.detail;
  return error;
}

}  // namespace tutti
