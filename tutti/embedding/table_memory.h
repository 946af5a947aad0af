#pragma once
#include "tutti/base/memory.h"

namespace tutti {

inline Result<Mapping> table_memory(std::size_t bytes) {
  return huge_memory(bytes, "embedding tables",
                     "more ranks or hosts, or a folder for the tables (EmbeddingOptions::folder)");
}

}  // namespace tutti
