#pragma once
// A Table that the threads of one process share, with the store server as one of its users: threads wait on a
// condition, the server is handed the answers to its clients. Threads: any.
#include <condition_variable>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tutti/base/mutex.h"
#include "tutti/store/store.h"
#include "tutti/store/table.h"

namespace tutti {

class SharedTable {
 public:
  using Answers = std::vector<Table::Answer>;

  // For a thread of this process: carries out the request and waits for the reply.
  Result<Reply> call(const StoreRequest& request, Deadline deadline, const Store::Waiting& waiting,
                     double report_every);

  // For the server: tickets and answers of clients elsewhere. `ring` is called, with the table locked, when a thread of
  // this process has caused answers that take_answers() will give; an empty one ends that.
  void serve(std::function<void()> ring);
  Table::Ticket new_ticket();
  Answers submit(Table::Ticket ticket, StoreRequest request);
  Answers take_answers();
  bool withdraw(Table::Ticket ticket);
  Missing missing(Table::Ticket ticket) const;

  // Ends all waits of this process and refuses new calls, with `reason`.
  void close(Error reason);

 private:
  struct Caller {  // a thread that waits
    std::condition_variable_any answered;
    std::optional<Reply> reply;
  };
  Answers submit_locked(Table::Ticket ticket, StoreRequest request) TUTTI_REQUIRES(mutex_);

  mutable Mutex mutex_;
  Table table_ TUTTI_GUARDED_BY(mutex_);
  Table::Ticket next_ticket_ TUTTI_GUARDED_BY(mutex_) = 1;
  std::unordered_map<Table::Ticket, Caller*> callers_ TUTTI_GUARDED_BY(mutex_);
  Answers outbox_ TUTTI_GUARDED_BY(mutex_);  // for the server
  std::function<void()> ring_ TUTTI_GUARDED_BY(mutex_);
  std::optional<Error> closed_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti
