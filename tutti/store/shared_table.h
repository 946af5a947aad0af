#pragma once
// A Table that the threads of one process share, with the store server as one of its users: threads wait on a
// condition, the server is handed the answers to its clients. Here a call that is repeated is recognised, changes are
// recorded for a follower, and answers are held until it has them. Threads: any.
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/store/memory_store.h"
#include "tutti/store/store.h"
#include "tutti/store/table.h"
#include "tutti/store/wire.h"

namespace tutti {

class SharedTable {
 public:
  using Answers = std::vector<Table::Answer>;

  // For a thread of this process: carries out the request and waits for the reply.
  Result<Reply> call(const StoreRequest& request, Deadline deadline, const Store::Waiting& waiting,
                     double report_every);

  // For the server: tickets and answers of clients elsewhere. `ring` is called, with the table locked, when a thread of
  // this process has caused answers that take_answers() will give, or entries for take_entries(); an empty one ends
  // that.
  void serve(std::function<void()> ring);
  Table::Ticket new_ticket();
  Answers submit(Table::Ticket ticket, StoreRequest request, Origin origin = {});
  Answers take_answers();
  void forget(std::uint64_t client);
  bool withdraw(Table::Ticket ticket);
  Missing missing(Table::Ticket ticket) const;

  // Ends all waits of this process and refuses new calls, with `reason`. open() takes calls again.
  void close(Error reason);
  void open();

  // A follower: from now on every change is an entry (a whole frame), beginning with those that make up the table as it
  // is. Once the follower has these, all answers wait until acknowledge() has counted the entries that they rest on.
  void begin_record();
  std::vector<std::string> take_entries();
  Answers acknowledge(std::uint64_t entries);
  // Whether the follower has had the whole copy, so that it might go on in our place.
  bool holds() const;
  // It is not known whether the follower has gone on in our place: no answer is given.
  void suspend();
  // Nobody follows any more: gives the answers that were held.
  Answers end_record();
  // What the key holds, also while calls are refused.
  std::optional<std::string> peek(const std::string& key) const;
  // As the follower: carries an entry out.
  Status follow(const wire::Frame& entry);

 private:
  struct Waiting {  // a call that has no answer yet
    Origin origin;
    Op op;
    std::string key;
  };
  struct Held {
    std::uint64_t entries;  // that the follower must have first
    Table::Answer answer;
  };
  struct Caller {  // a thread that waits
    std::condition_variable_any answered;
    std::optional<Reply> reply;
  };
  Answers submit_locked(Table::Ticket ticket, StoreRequest request, Origin origin) TUTTI_REQUIRES(mutex_);
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
  bool holding_ TUTTI_GUARDED_BY(mutex_) = false;              // answers wait for the follower
  bool suspended_ TUTTI_GUARDED_BY(mutex_) = false;            // and there is none that could acknowledge
  std::vector<std::string> entries_ TUTTI_GUARDED_BY(mutex_);  // not yet taken
  std::uint64_t recorded_ TUTTI_GUARDED_BY(mutex_) = 0;        // since begin_record()
  std::uint64_t copied_ TUTTI_GUARDED_BY(mutex_) = 0;          // of those: the table as it was
  std::uint64_t acknowledged_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::deque<Held> held_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti
