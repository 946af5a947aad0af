#pragma once
// Learns of one key being set in any Store, as a descriptor for a poll loop. A TcpStore has such a thing of its own
// (Watch); for the others a thread waits. Threads: one at a time.
#include <memory>
#include <optional>
#include <string>

#include "tutti/store/store.h"

namespace tutti::launch::membership {

class KeyWatch {
 public:
  static Result<std::unique_ptr<KeyWatch>> open(Store& store, const std::string& key, Deadline deadline);
  virtual ~KeyWatch() = default;
  virtual int fd() const = 0;
  // The value once the key exists; none: not yet. An error (kPeerLost: who serves the store has gone) is final, as is
  // the value.
  virtual std::optional<Result<std::string>> try_read() = 0;
};

}  // namespace tutti::launch::membership
