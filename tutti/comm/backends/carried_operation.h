#pragma once
// An operation that a Backend carries. Libraries do not have averages, premultiplied sums, sums of 16-bit floats in
// f32, and sums of complex numbers and bool. These are composed here of operations that all libraries have. So adapters
// stay thin and all backends give the same results.
#include <cstdint>
#include <memory>

#include "tutti/comm/backends/backend.h"

namespace tutti::comm {

// Starts `request` on rank `rank` of `size`. `backend` must outlive the operation.
Result<std::unique_ptr<Operation>> start_carried(Backend& backend, const Request& request, std::uint64_t sequence,
                                                 int rank, int size);
BackendServices backend_services();

}  // namespace tutti::comm
