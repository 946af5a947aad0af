#pragma once
// Large private memory: for tables, which are read at random places.
#include <cstddef>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

// Zeroed, aligned to 2 MiB, on huge pages where the system gives them (transparent huge pages in mode "madvise" or
// "always"); a page is made when it is first touched. kLimit if there is no address space for it.
Result<Mapping> huge_memory(std::size_t bytes);

}  // namespace tutti
