// Agents of different nodes never talk to each other, only to the store. Whatever ends the job is one key that exists
// once: whoever stores it first has decided, and everybody watches it. So two failures at the same moment still have
// one winner, and every node prints the same cause.
//
// A node whose host dies stores nothing. Its agent's sign of life then stands still, which node 0 sees on its own
// monotonic clock (no wall clocks are compared), and node 0 tells the fault in its place. If node 0 itself dies, the
// others lose the connection.
#include "tutti/launch/nodes.h"

#include <poll.h>

#include <algorithm>

#include "tutti/base/text.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

constexpr auto kCallLimit = std::chrono::seconds(3);  // for the store's short calls, while workers are running
constexpr auto kBeat = std::chrono::seconds(1);
constexpr auto kSlice = std::chrono::seconds(1);  // of the roll call
constexpr double kSayEvery = 5;                   // seconds
constexpr const char* kEnd = "agents/end";
constexpr const char* kRefused = "agents/refused";
constexpr const char* kRollHint = "every node needs its own --node-rank from 0 up, and all the same --nnodes";
std::string told_key(int node) { return "agents/told/" + std::to_string(node); }

// The store speaks of ranks; among agents these are nodes.
Error of_nodes(Error error) {
  for (std::string* text : {&error.detail, &error.hint}) {
    for (std::size_t at = 0; (at = text->find("rank", at)) != std::string::npos; at += 4) text->replace(at, 4, "node");
  }
  if (error.code == Code::kMismatch) error.hint = kRollHint;
  return error;
}

}  // namespace

Result<std::unique_ptr<Nodes>> Nodes::open(NodesOptions options) {
  std::unique_ptr<Nodes> nodes(new Nodes(std::move(options)));
  if (nodes->options_.node == 0) {
    nodes->server_ = TUTTI_TRY(StoreServer::start(nodes->options_.store, nodes->options_.credentials));
    nodes->options_.store = nodes->server_->address();
  }
  nodes->store_address_ = to_string(nodes->options_.store);
  return nodes;
}

Result<Round> Nodes::meet() {
  const Deadline deadline = Deadline::after(options_.timeout);
  const bool restarted = news_ && news_->again && news_->kind == News::Kind::kFault;
  if (restarted) past_.push_back(news_->fault);
  round_ = Round{.number = news_ ? round_.number + 1 : 0, .restarts_used = int(past_.size())};
  news_.reset();
  done_ = false;
  round_.node = options_.node;
  round_.store = store_address_;
  round_.master_address = options_.master_address;
  round_.master_port = options_.master_port;
  if (one_node()) {
    store_ = server_->local();
    round_.layout = Layout{.counts = {options_.counts.here}};
    round_.nodes = {NodeFacts{.host = options_.host, .ranks = options_.counts.here, .about = options_.about}};
    return round_;
  }
  TUTTI_TRY(reach_store(deadline));
  TUTTI_TRY(roll_call(deadline));
  beats_.resize(std::size_t(options_.nodes));
  return round_;
}

Status Nodes::reach_store(Deadline deadline) {
  for (;;) {
    auto connected =
        TcpStore::connect(options_.store, options_.credentials, -1, deadline.at_most(std::chrono::seconds(5)));
    if (connected.ok()) {
      (*connected)->set_call_timeout(kCallLimit);
      watch_ = TUTTI_TRY((*connected)->watch(kEnd, deadline));
      local_address_ = (*connected)->local_address().host;
      store_ = std::move(*connected);
      return {};
    }
    Error error = connected.error();
    const bool again = error.code == Code::kTimeout || error.code == Code::kUnreachable;
    if (again && !deadline.expired()) {
      options_.say("waiting for node 0 at " + store_address_ + " for " + seconds_text(deadline.waited()) + " of " +
                   seconds_text(deadline.limit()));
      if (error.code == Code::kUnreachable) poll(nullptr, 0, 500);  // told at once: do not ask in a tight loop
      continue;
    }
    if (again) {
      error.waited = deadline.waited(), error.limit = deadline.limit();
      error.hint = "is node 0 started, with the same --master-addr and --master-port, and does a firewall let " +
                   store_address_ + " through?";
    }
    return error;
  }
}

// A gathering cannot be called off, so the wait is cut into slices: between two of them a node looks whether another
// one was turned away, which waiting does not heal.
Result<std::vector<std::string>> Nodes::gather_roll(const std::string& mine, Deadline deadline) {
  double next_line = kSayEvery;
  for (;;) {
    auto answers = store_->gather_all("agents/roll", options_.node, options_.nodes, mine, deadline.at_most(kSlice));
    if (answers.ok()) return answers;
    if (answers.error().code == Code::kMismatch) return tell_refusal(of_nodes(answers.error()));
    if (answers.error().code != Code::kTimeout) return of_nodes(answers.error());
    if (TUTTI_TRY(store_->check({kRefused}))) return read_refusal();
    Error missing = of_nodes(answers.error());
    if (deadline.expired()) return deadline.error(missing.detail, missing.hint);
    if (deadline.waited() < next_line) continue;
    options_.say(missing.detail + " after " + seconds_text(deadline.waited()) + " of " +
                 seconds_text(deadline.limit()));
    next_line = deadline.waited() + kSayEvery;
  }
}

// Only while somebody waits in the roll call is the refusal read; a latecomer to a job that runs disturbs nobody.
Status Nodes::tell_refusal(const Error& error) {
  (void)store_->compare_set(
      kRefused, std::nullopt,
      "node " + std::to_string(options_.node) + " (" + options_.host + ") was turned away: " + error.detail);
  let_others_read();
  return error;
}

Status Nodes::read_refusal() {
  const std::string text = TUTTI_TRY(store_->get(kRefused, Deadline::after(kCallLimit)));
  let_others_read();
  return Error{.code = Code::kMismatch, .detail = text, .hint = kRollHint};
}

// The store goes with node 0.
void Nodes::let_others_read() {
  (void)store_->set(told_key(options_.node), "");
  if (options_.node != 0) return;
  std::vector<std::string> told;
  for (int node = 1; node < options_.nodes; ++node) told.push_back(told_key(node));
  (void)store_->wait(told, Deadline::after(2 * kSlice));
}

Status Nodes::roll_call(Deadline deadline) {
  const RollNote mine{.ranks = options_.counts.here,
                      .listed = options_.counts.all,
                      .host = options_.host,
                      .address = local_address_,
                      .about = options_.about};
  const auto notes = TUTTI_TRY(read_roll(TUTTI_TRY(gather_roll(encode(mine), deadline))));
  round_.layout = Layout{.counts = {}, .node = options_.node};
  for (const RollNote& note : notes) {
    round_.layout.counts.push_back(note.ranks);
    round_.nodes.push_back({.host = note.host, .address = note.address, .ranks = note.ranks, .about = note.about});
  }
  return {};
}

void Nodes::update() {
  if (one_node() || news_) return;
  if (const auto answer = watch_->try_read()) {
    if (!answer->ok()) return lose_store(answer->error());
    return end_with(**answer, false);
  }
  if (now() - last_beat_ < kBeat) return;
  last_beat_ = now();
  const Status told = store_->set("agents/beat/" + std::to_string(options_.node), std::to_string(++beat_));
  if (!told) return lose_store(told.error());
  if (options_.node == 0) look_for_lost_nodes();
}

void Nodes::end_with(const std::string& value, bool mine) {
  news_ = News{.mine = mine};
  if (auto fault = parse_end(value)) {
    news_->kind = News::Kind::kFault;
    news_->fault = *std::move(fault);
  }
}

void Nodes::lose_store(const Error& error) {
  store_lost_ = true;
  news_ = News{
      .kind = News::Kind::kFault,
      .fault = {.text = "node " + std::to_string(options_.node) + " (" + options_.host +
                        ") lost the store of node 0 (" +
                        (round_.nodes.empty() ? store_address_ : round_.nodes[0].host) + "): " + to_string(error)}};
}

void Nodes::look_for_lost_nodes() {
  const auto table = server_->local();
  for (int node = 1; node < options_.nodes; ++node) {
    Beat& beat = beats_[std::size_t(node)];
    const std::string key = "agents/beat/" + std::to_string(node);
    const auto there = table->check({key});
    const auto value =
        there.ok() && *there ? table->get(key, Deadline::after(kCallLimit)) : Result<std::string>(std::string());
    if (value.ok() && *value != beat.value) {
      beat.value = *value;
      beat.seen = now();
    } else if (now() - beat.seen >= options_.lost_after) {
      const Fault fault{.text = "node " + std::to_string(node) + " (" + round_.nodes[std::size_t(node)].host +
                                ") is lost: nothing was heard of its agent for " +
                                seconds_text(seconds_since(beat.seen))};
      News news = publish(fault);
      (void)store_->add("agents/left", 1);  // nobody else will say so for it
      news.mine = false;                    // no rank of this node
      news_ = std::move(news);
      return;
    }
  }
}

News Nodes::publish(const Fault& fault) {
  News mine{.kind = News::Kind::kFault, .mine = true, .fault = fault};
  if (news_) return *news_;
  if (one_node() && options_.judge) {
    mine.verdict = options_.judge(past_, fault);
    mine.again = mine.verdict.restart;
  }
  news_ = mine;
  if (!store_ || store_lost_) return mine;
  if (!one_node()) {
    const auto ended = store_->compare_set(kEnd, std::nullopt, encode_end(fault));
    if (!ended.ok()) return mine;  // the store is gone; what happened here is still the best that this node knows
    if (!ended->stored) {
      end_with(ended->value.value_or("1\nanother failure"), false);
      return *news_;
    }
  }
  (void)store_->set("generation-" + std::to_string(round_.number) + "/fault", fault.text);
  return mine;
}

void Nodes::done() {
  if (news_ || done_) return;
  done_ = true;
  if (one_node()) {
    news_ = News{};
    return;
  }
  const auto count = store_->add("agents/done", 1);
  if (!count.ok()) return lose_store(count.error());
  if (*count == options_.nodes) (void)store_->compare_set(kEnd, std::nullopt, encode_end({}));
}

void Nodes::leave(Duration patience) {
  if (one_node() || store_lost_ || !store_) return;
  const auto count = store_->add("agents/left", 1);
  if (count.ok() && *count >= options_.nodes) (void)store_->set("agents/left/all", "");
  if (options_.node == 0) (void)store_->get("agents/left/all", Deadline::after(patience));
}

}  // namespace tutti
