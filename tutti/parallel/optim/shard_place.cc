// A table of the process, since a tensor has no place for a note and torch::optim takes nothing but tensors.
#include "tutti/parallel/optim/shard_place.h"

#include <unordered_map>

#include "tutti/base/mutex.h"

namespace tutti {
namespace {

struct Table {
  Mutex mutex;
  std::unordered_map<const c10::TensorImpl*, std::shared_ptr<const ShardPlace>> places TUTTI_GUARDED_BY(mutex);
};

Table& table() {
  static Table* const made = new Table;  // never destroyed: models may outlive static variables
  return *made;
}

}  // namespace

ShardPlaces::~ShardPlaces() {
  std::vector<std::shared_ptr<const ShardPlace>>
      gone;  // their groups may be the last handles: they end without the lock
  const MutexLock lock(table().mutex);
  for (const auto& shard : shards_) {
    const auto found = table().places.find(shard.unsafeGetTensorImpl());
    if (found == table().places.end()) continue;
    gone.push_back(std::move(found->second));
    table().places.erase(found);
  }
}

void ShardPlaces::add(const at::Tensor& shard, ShardPlace place) {
  const MutexLock lock(table().mutex);
  table().places.insert_or_assign(shard.unsafeGetTensorImpl(), std::make_shared<const ShardPlace>(std::move(place)));
  shards_.push_back(shard);
}

std::shared_ptr<const ShardPlace> shard_place(const at::Tensor& tensor) {
  const MutexLock lock(table().mutex);
  const auto found = table().places.find(tensor.unsafeGetTensorImpl());
  return found == table().places.end() ? nullptr : found->second;
}

}  // namespace tutti
