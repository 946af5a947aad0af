#include "tutti/parallel/data_parallel/stats_json.h"

#include <nlohmann/json.hpp>

namespace tutti {

std::string to_json(const DataParallelStats& stats) {
  const nlohmann::ordered_json json = {{"steps", stats.steps},
                                       {"exposed_seconds", stats.exposed_seconds},
                                       {"last_exposed_seconds", stats.last_exposed_seconds},
                                       {"bytes_per_step", stats.bytes_per_step},
                                       {"overlapped", stats.overlapped},
                                       {"rebuilt", stats.rebuilt},
                                       {"buckets", stats.buckets},
                                       {"sparse", stats.sparse},
                                       {"delayed", stats.delayed},
                                       {"unused", stats.unused}};
  return json.dump();
}

}  // namespace tutti
