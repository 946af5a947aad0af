#pragma once
// Collectives in a group of one: copies, and products with the factor of a premultiplied sum.
#include "tutti/comm/request.h"

namespace tutti {

void run_alone(const Request& request);

}  // namespace tutti
