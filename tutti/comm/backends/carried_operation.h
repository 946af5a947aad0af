#pragma once
// An operation that a Backend carries: what libraries do not have (averages, premultiplied sums, sums of 16-bit floats
// in f32, sums of complex numbers and bool) is made here from what they all have, so that adapters stay thin and
// results are alike.
#include <cstdint>
#include <memory>

#include "tutti/comm/backends/backend.h"

namespace tutti {

// Starts `request` of rank `rank` of `size`. `backend` outlives the operation.
Result<std::unique_ptr<Operation>> start_carried(Backend& backend, const Request& request, std::uint64_t sequence,
                                                 int rank, int size);
BackendServices backend_services();

}  // namespace tutti
