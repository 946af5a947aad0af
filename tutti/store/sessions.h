#pragma once
// What the server remembers of clients that may repeat a call after their connection was lost: the number of the last
// call that changed something, and its reply. So a change that is repeated is answered and not made again. Private to
// store/. Threads: none of its own.
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "tutti/store/request.h"

namespace tutti {

// Who makes a call. Client 0 never repeats one.
struct Origin {
  std::uint64_t client = 0;
  std::uint32_t number = 0;  // rises from call to call of one client

  bool operator==(const Origin&) const = default;
};

// Whether a call that is made twice does harm: it changes the table, or takes part in a meeting that is over.
bool must_not_repeat(Op op);

class Sessions {
 public:
  using SharedReply = std::shared_ptr<const Reply>;

  // Beyond these the client that was silent longest is forgotten.
  static constexpr std::size_t kMost = 64 * 1024;
  static constexpr std::size_t kMostBytes = std::size_t(64) << 20;

  // The reply to exactly this call if it has been carried out, else null.
  SharedReply find(Origin origin) const;
  void remember(Origin origin, SharedReply reply);
  void forget(std::uint64_t client);
  // All that is remembered, the longest silent first.
  template <class Visit>
  void each(Visit visit) const {
    for (const auto& entry : by_age_) visit(entry.origin, entry.reply);
  }

 private:
  struct Entry {
    Origin origin;
    SharedReply reply;
  };
  static std::size_t bytes_of(const Reply& reply);

  std::list<Entry> by_age_;
  std::unordered_map<std::uint64_t, std::list<Entry>::iterator> by_client_;
  std::size_t bytes_ = 0;  // a reply that several share counts for each
};

}  // namespace tutti
