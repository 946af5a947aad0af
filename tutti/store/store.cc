// The verbs of a Store as requests. An error gets the name of the call here, once for all stores.
#include "tutti/store/store.h"

#include <utility>

#include "tutti/store/request.h"

namespace tutti {

Result<store::Reply> Store::run(const store::Request& request, const Deadline* deadline, const Waiting& waiting) {
  const auto with_name = [&](Error error) {
    if (error.operation.empty()) error.operation = describe(request);
    if (error.rank < 0) error.rank = request.rank;
    return error;
  };
  if (const Status valid = store::check_request(request); !valid.ok()) return with_name(valid.error());
  auto reply = call(request, deadline ? *deadline : Deadline::after(call_timeout_), waiting);
  if (!reply.ok()) return with_name(reply.error());
  if (reply->error) return with_name(*reply->error);
  const std::size_t expected = request.op == store::Op::kGet         ? request.keys.size()
                               : request.op == store::Op::kPop       ? 1
                               : request.op == store::Op::kGatherAll ? std::size_t(request.size)
                                                                     : 0;
  if (expected != 0 && reply->values.size() != expected)
    return with_name(Error{.code = Code::kCorrupt,
                           .detail = "the store answered " + std::to_string(reply->values.size()) + " values for " +
                                     std::to_string(expected)});
  return reply;
}

Status Store::set(const std::string& key, const std::string& value) {
  return run({.op = store::Op::kSet, .keys = {key}, .values = {value}}).status();
}

Result<std::string> Store::get(const std::string& key, Deadline deadline) {
  return std::move(TUTTI_TRY(run({.op = store::Op::kGet, .keys = {key}}, &deadline)).values[0]);
}

Result<std::int64_t> Store::add(const std::string& key, std::int64_t amount) {
  return TUTTI_TRY(run({.op = store::Op::kAdd, .keys = {key}, .number = amount})).number;
}

Result<CompareSet> Store::compare_set(const std::string& key, const std::optional<std::string>& expected,
                                      const std::string& desired) {
  store::Request request{.op = store::Op::kCompareSet, .keys = {key}, .values = {desired}};
  if (expected) request.values.push_back(*expected);
  store::Reply reply = TUTTI_TRY(run(request));
  CompareSet result{.stored = reply.flag};
  if (!reply.values.empty()) result.value = std::move(reply.values[0]);
  return result;
}

Status Store::wait(const std::vector<std::string>& keys, Deadline deadline) {
  return run({.op = store::Op::kWait, .keys = keys}, &deadline).status();
}

Result<bool> Store::check(const std::vector<std::string>& keys) {
  return TUTTI_TRY(run({.op = store::Op::kCheck, .keys = keys})).flag;
}

Result<bool> Store::remove(const std::string& key) {
  return TUTTI_TRY(run({.op = store::Op::kRemove, .keys = {key}})).flag;
}

Result<std::int64_t> Store::num_keys() { return TUTTI_TRY(run({.op = store::Op::kNumKeys})).number; }

Status Store::append(const std::string& key, const std::string& value) {
  return run({.op = store::Op::kAppend, .keys = {key}, .values = {value}}).status();
}

Result<std::vector<std::string>> Store::multi_get(const std::vector<std::string>& keys, Deadline deadline) {
  return std::move(TUTTI_TRY(run({.op = store::Op::kGet, .keys = keys}, &deadline)).values);
}

Status Store::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  return run({.op = store::Op::kMultiSet, .keys = keys, .values = values}).status();
}

Status Store::push(const std::string& key, const std::string& value) {
  return run({.op = store::Op::kPush, .keys = {key}, .values = {value}}).status();
}

Result<std::string> Store::pop(const std::string& key, Deadline deadline) {
  return std::move(TUTTI_TRY(run({.op = store::Op::kPop, .keys = {key}}, &deadline)).values[0]);
}

Result<std::int64_t> Store::queue_length(const std::string& key) {
  return TUTTI_TRY(run({.op = store::Op::kQueueLength, .keys = {key}})).number;
}

Status Store::barrier(const std::string& key, int rank, int size, Deadline deadline, const Waiting& waiting) {
  return run({.op = store::Op::kBarrier, .keys = {key}, .rank = rank, .size = size}, &deadline, waiting).status();
}

Result<std::vector<std::string>> Store::gather_all(const std::string& key, int rank, int size, const std::string& value,
                                                   Deadline deadline, const Waiting& waiting) {
  return std::move(
      TUTTI_TRY(run({.op = store::Op::kGatherAll, .keys = {key}, .values = {value}, .rank = rank, .size = size},
                    &deadline, waiting))
          .values);
}

}  // namespace tutti
