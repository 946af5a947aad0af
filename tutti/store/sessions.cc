#include "tutti/store/memory_store.h"

namespace tutti {

bool must_not_repeat(Op op) {
  switch (op) {
    case Op::kGet:
    case Op::kWait:
    case Op::kCheck:
    case Op::kNumKeys:
    case Op::kQueueLength:
      return false;
    case Op::kSet:
    case Op::kAdd:
    case Op::kCompareSet:
    case Op::kRemove:
    case Op::kAppend:
    case Op::kMultiSet:
    case Op::kPush:
    case Op::kPop:
    case Op::kBarrier:
    case Op::kGatherAll:
      return true;
  }
  return true;
}

std::size_t Sessions::bytes_of(const Reply& reply) {
  std::size_t bytes = sizeof(Reply);
  for (const auto& value : reply.values) bytes += value.size();
  return bytes;
}

Sessions::SharedReply Sessions::find(Origin origin) const {
  const auto found = by_client_.find(origin.client);
  return found != by_client_.end() && found->second->origin == origin ? found->second->reply : nullptr;
}

void Sessions::remember(Origin origin, SharedReply reply) {
  if (origin.client == 0) return;
  forget(origin.client);
  bytes_ += bytes_of(*reply);
  by_client_[origin.client] = by_age_.insert(by_age_.end(), {origin, std::move(reply)});
  while (by_age_.size() > kMost || (bytes_ > kMostBytes && by_age_.size() > 1)) forget(by_age_.front().origin.client);
}

void Sessions::forget(std::uint64_t client) {
  const auto found = by_client_.find(client);
  if (found == by_client_.end()) return;
  bytes_ -= bytes_of(*found->second->reply);
  by_age_.erase(found->second);
  by_client_.erase(found);
}

}  // namespace tutti
