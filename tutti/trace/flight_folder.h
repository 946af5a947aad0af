#pragma once
#include <string>

#include "tutti/base/error.h"

namespace tutti {

// The folder for the flight records and stacks of a job; it may be there already, and those above it are made too. One
// by the name of default_flight_folder(), which anybody can guess, is made in a folder that is there, and kRefused if
// it is not this user's alone.
Status make_flight_folder(const std::string& folder);
// Whether what lies in it may be believed, and renamed: it is no folder of others that has that name. False where there
// is none.
bool is_own_flight_folder(const std::string& folder);

}  // namespace tutti
