#pragma once
// Collectives in a group of one: copies, and products with the factor of a premultiplied sum.
#include <memory>

#include "tutti/comm/operation.h"
#include "tutti/comm/request.h"

namespace tutti {

void run_alone(const Request& request);
// The same as an operation, done at its first step.
std::unique_ptr<Operation> make_alone(const Request& request);

}  // namespace tutti
