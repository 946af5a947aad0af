#pragma once
// Large private memory that is read at random places: embedding tables, the steps of a simulation.
#include <cstddef>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

// Zeroed, aligned to 2 MiB, on huge pages where the system gives them (transparent huge pages in mode "madvise" or
// "always"); a page is made when it is first touched. kLimit if there is no address space for it: the error says what
// it was for
// ("embedding tables") and gives the hint.
Result<Mapping> huge_memory(std::size_t bytes, const char* what, const char* hint);

}  // namespace tutti
