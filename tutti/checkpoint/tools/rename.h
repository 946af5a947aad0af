#pragma once
// The tensors of another source under other names.
#include <cstdint>
#include <map>
#include <memory>

#include "tutti/checkpoint/open.h"

namespace tutti {

// renamed[new] = old; others are left out. `numbers`: whole numbers that are tensors besides, I64 without dimensions.
// `source` outlives it.
std::unique_ptr<TensorSource> rename_tensors(const TensorSource& source, std::map<TensorKey, TensorKey> renamed,
                                             std::map<TensorKey, std::int64_t> numbers = {});

}  // namespace tutti
