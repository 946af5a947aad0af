#pragma once
// How a rank joins a world that another library has already counted: PyTorch, Ray, mpi4py. Rank 0 starts a store of
// ours and leaves its address and secret in the other library's key-value store. From then on all ranks use ours, which
// waits without polling and reports the cause of a failure.
#include <functional>
#include <string>

#include "tutti/rendezvous/join.h"

namespace tutti::rendezvous {

// The other library's store. Whoever may read it may join the world. The functions may throw any std::exception.
struct ForeignStore {
  std::function<void(const std::string& key, const std::string& value)> set;
  std::function<std::string(const std::string& key, Duration limit)> get;  // waits for the key
  std::function<std::int64_t(const std::string& key)> add;                 // adds 1, and returns the sum
  std::function<bool(const std::string& key)> has = {};  // at once; without it, errors name fewer ranks
};

struct ForeignWorld {
  int rank = 0;
  int world_size = 1;
  std::string name;                         // the same on every rank; a later world may have it again
  std::string library = "another library";  // for messages
  // Another backend that a rank may use by mistake, such as "gloo", and the beginning of the key that rank R leaves in
  // the store then: "0/" for "0/R".
  std::string other_backend = {}, other_key = {};
};

// Blocks until every rank of the world has joined, at most `timeout`. A wait that takes long names the missing ranks on
// the log. Errors as join(). kMismatch, within seconds: a rank uses the other backend.
Result<Membership> join_through(const ForeignStore& store, const ForeignWorld& world, Duration timeout);

}  // namespace tutti::rendezvous
