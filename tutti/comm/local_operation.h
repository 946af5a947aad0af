#pragma once
// Collectives in a group of one: copies.
#include "tutti/comm/request.h"

namespace tutti {

void run_alone(const Request& request);

}  // namespace tutti
