#pragma once
// A Table that several threads share, and what it remembers of the clients.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/store/request.h"
#include "tutti/store/store.h"
#include "tutti/store/table.h"

namespace tutti::store {

namespace wire {
struct Frame;
}  // namespace wire

// The last call of each client that changed something, and its reply. A client may repeat a call after its connection
// was lost: then it gets this reply, and the change is not made again. Threads: none of its own.
class Sessions {
 public:
  using SharedReply = std::shared_ptr<const Reply>;

  // Beyond these limits the client that was silent longest is forgotten.
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

// A Table that the threads of one process share, with the store server as one of its users: threads wait on a
// condition, the server is handed the answers to its clients. It recognises repeated calls, records changes for a
// standby (store/server/replication.h), and holds answers back until the standby has them. Threads:
// any.
class SharedTable {
 public:
  using Answers = std::vector<Table::Answer>;

  // For a thread of this process: carries out the request and waits for the reply.
  Result<Reply> call(const Request& request, Deadline deadline, const Store::Waiting& waiting, double report_every);

  // For the server: tickets and answers of clients elsewhere. `ring` is called, with the table locked, when a thread of
  // this process has caused answers that take_answers() will give, or entries for take_entries(); an empty one ends
  // that.
  void serve(std::function<void()> ring);
  Table::Ticket new_ticket();
  Answers submit(Table::Ticket ticket, Request request, Origin origin = {});
  Answers take_answers();
  void forget(std::uint64_t client);
  bool withdraw(Table::Ticket ticket);
  Missing missing(Table::Ticket ticket) const;

  // Ends all waits of this process and refuses new calls, with `reason`. open() takes calls again.
  void close(Error reason);
  void open();

  // For a primary with a standby. From now on every change is an entry (a whole frame); the first entries make up the
  // table as it is. Once the standby has these, every answer waits until acknowledge() has counted the entries that it
  // rests on.
  void begin_replication();
  std::vector<std::string> take_entries();
  Answers acknowledge(std::uint64_t entries);
  // Whether the standby has the whole copy, so that it might take over.
  bool standby_has_copy() const;
  // The standby may have taken over: no answer is given.
  void suspend();
  // There is no standby any more: gives the answers that were held.
  Answers end_replication();
  // For a standby: carries an entry out.
  Status apply_entry(const wire::Frame& entry);

  // What the key holds, also while calls are refused.
  std::optional<std::string> peek(const std::string& key) const;

 private:
  struct Waiting {  // a call that has no answer yet
    Origin origin;
    Op op;
    std::string key;
  };
  struct Held {
    std::uint64_t entries;  // that the standby must have first
    Table::Answer answer;
  };
  struct Caller {  // a thread that waits
    std::condition_variable_any answered;
    std::optional<Reply> reply;
  };
  Answers submit_locked(Table::Ticket ticket, Request request, Origin origin) TUTTI_REQUIRES(mutex_);
  void end_call(Table::Ticket ticket) TUTTI_REQUIRES(mutex_);
  void settle(const Table::Answer& answer) TUTTI_REQUIRES(mutex_);
  void record(std::string entry) TUTTI_REQUIRES(mutex_);
  Answers give(Answers answers) TUTTI_REQUIRES(mutex_);
  Answers give_held() TUTTI_REQUIRES(mutex_);

  mutable Mutex mutex_;
  Table table_ TUTTI_GUARDED_BY(mutex_);
  Table::Ticket next_ticket_ TUTTI_GUARDED_BY(mutex_) = 1;
  std::unordered_map<Table::Ticket, Caller*> callers_ TUTTI_GUARDED_BY(mutex_);
  Answers outbox_ TUTTI_GUARDED_BY(mutex_);  // for the server
  std::function<void()> ring_ TUTTI_GUARDED_BY(mutex_);
  std::optional<Error> closed_ TUTTI_GUARDED_BY(mutex_);

  Sessions sessions_ TUTTI_GUARDED_BY(mutex_);
  std::unordered_map<Table::Ticket, Waiting> waiting_ TUTTI_GUARDED_BY(mutex_);
  bool recording_ TUTTI_GUARDED_BY(mutex_) = false;
  bool holding_ TUTTI_GUARDED_BY(mutex_) = false;              // answers wait for the standby
  bool suspended_ TUTTI_GUARDED_BY(mutex_) = false;            // and no standby can acknowledge
  std::vector<std::string> entries_ TUTTI_GUARDED_BY(mutex_);  // not yet taken
  std::uint64_t recorded_ TUTTI_GUARDED_BY(mutex_) = 0;        // since begin_replication()
  std::uint64_t copied_ TUTTI_GUARDED_BY(mutex_) = 0;          // of those: the table as it was
  std::uint64_t acknowledged_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::deque<Held> held_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::store
