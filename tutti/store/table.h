#pragma once
// What a Store does, as a pure state machine: no clock, no thread, no I/O. A request is submitted under a ticket and is
// answered at once, or when a later request brings what it waits for. Memory store, server and file store all run this
// one. Threads: none of its own; the owner locks.
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tutti/store/request.h"

namespace tutti::store {

class Table {
 public:
  using Ticket = std::uint64_t;  // chosen by the owner, unique among the waiting
  struct Answer {
    std::vector<Ticket> tickets;  // several when a barrier or gather_all completes: they share the reply
    Reply reply;
  };

  // Carries out the request; answers, to it and to those that it sets free, are appended to `answers`.
  void submit(Ticket ticket, Request request, std::vector<Answer>& answers);
  // Takes back a request that waits (a rank leaves its barrier); false if it does not wait any more.
  bool withdraw(Ticket ticket);
  // What a waiting request still waits for; empty if it does not wait.
  Missing missing(Ticket ticket) const;
  std::size_t waiting() const { return pending_.size(); }
  std::size_t bytes() const { return bytes_; }
  // None: no such key.
  const std::string* find(const std::string& key) const;
  // Requests that make an empty table hold what this one does. Waiting requests are not part of it.
  template <class Visit>
  void each_content(Visit visit) const {
    for (const auto& [key, value] : values_) visit(Request{.op = Op::kSet, .keys = {key}, .values = {value}});
    for (const auto& [key, queue] : queues_)
      for (const auto& value : queue) visit(Request{.op = Op::kPush, .keys = {key}, .values = {value}});
  }

 private:
  struct PendingBarrier {  // a barrier or gather_all that some ranks have entered
    Op op;
    int size;
    std::map<int, Ticket> entered;  // by rank; the values stay in pending_
    std::size_t bytes = 0;          // of the values of the ranks that have entered
  };

  Reply carry_out(Request& request, std::vector<Answer>& answers);
  Reply add(const Request& request, std::vector<Answer>& answers);
  Reply compare_set(Request& request, std::vector<Answer>& answers);
  Reply remove(const std::string& key);
  Reply get(const Request& request) const;
  Status store(const std::string& key, std::string value, std::vector<Answer>& answers);
  Status push(const std::string& key, std::string value, std::vector<Answer>& answers);
  Status admit(std::size_t more_keys, std::size_t more_bytes) const;
  bool park(Ticket ticket, Request& request, std::vector<Answer>& answers);
  void release_waiters(const std::string& key, std::vector<Answer>& answers);
  void enter(Ticket ticket, Request request, std::vector<Answer>& answers);
  const std::string* first_missing(const std::vector<std::string>& keys) const;

  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;  // never empty ones
  std::unordered_map<std::string, PendingBarrier> barriers_;
  std::unordered_map<Ticket, Request> pending_;
  std::unordered_map<std::string, std::deque<Ticket>> waiters_;  // each ticket under the first key that it lacks
  std::unordered_map<std::string, std::deque<Ticket>> poppers_;
  std::size_t bytes_ = 0;  // of keys and values, queues and barriers included
};

}  // namespace tutti::store
