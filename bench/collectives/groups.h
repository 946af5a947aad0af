#pragma once
// Which groups measure at the same time.
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::bench {

// world; halves: two runs of neighbours; pairs: runs of two; even_odd: ranks 0, 2, ... and 1, 3, ...; or lists of
// ranks: "0,2/1,3". Rank 0, which prints, has to be in one of them; others need not be.
Result<std::vector<std::vector<int>>> groups_of(const std::string& text, int ranks);

}  // namespace tutti::bench
