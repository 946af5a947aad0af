// A discrete-event simulation. A queue holds the events by time: a message has left its sender's port (so the send step
// is done), its first byte reaches the receiver's port, its last byte has arrived, a rank has finished an addition or a
// copy. Nothing changes between events, so simulated time without events costs nothing.
//
// Ports and cards serve messages in arrival order, so the time at which a port becomes free is all of its state.
//
// The simulator finds runnable steps without examining blocked ones. It only examines the first unfinished step of a
// lane. A lane is the sends of a stream, its receives, or the local steps of a rank. A step that must wait for an
// earlier step enters that step's list and is examined again when the earlier step is done. So a run costs a constant
// per step and a logarithm per event. The real cost is cache misses, because time advances all ranks together.
// Therefore the state of a step fits in one cache line, and the plans themselves are not kept.
#include "tutti/comm/plans/simulator/simulator.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <queue>
#include <span>
#include <unordered_map>
#include <utility>

#include "tutti/base/text.h"
#include "tutti/comm/plans/simulator/contents.h"
#include "tutti/comm/plans/simulator/pool.h"

namespace tutti::comm {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t(0);
constexpr std::uint64_t kMostSteps = 32'000'000;  // 64 bytes each, plus the data that they move
constexpr double kNever = std::numeric_limits<double>::infinity();

std::uint64_t mix(std::uint64_t x) {
  x = (x + 0x9e3779b97f4a7c15u) ^ (x >> 31);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class Simulator {
 public:
  explicit Simulator(const Scenario& scenario)
      : scenario_(scenario), network_(scenario.network), size_(scenario.shape.size), hosts_(hosts_of(scenario)) {
    contents_.push_back(make_symbolic(size_, pool_));
    if (scenario.with_elements) contents_.push_back(make_elements(scenario.shape.element));
    ranks_.resize(std::size_t(size_));
    cards_.resize(std::size_t(hosts_.count()) * std::size_t(network_.cards));
    outcome_.traffic.resize(std::size_t(size_));
    outcome_.ended.assign(std::size_t(size_), -1);
    for (const Faults::Slow& slow : scenario.faults.slow) ranks_[slow.rank].factor = slow.factor;
    set_shapes();
  }

  void set_shapes() {
    const Kind kind = scenario_.kind;
    const auto& splits = scenario_.splits;
    const std::size_t n = std::size_t(size_);
    shapes_.assign(n, scenario_.shape);
    if (kind == Kind::kAllToAll && !splits.empty()) came_.assign(n, std::vector<std::size_t>(n));
    for (std::size_t r = 0; r < n; ++r) {
      Shape& shape = shapes_[r];
      shape.rank = int(r);
      if (splits.empty()) continue;
      if (kind == Kind::kAllToAll) {
        for (std::size_t from = 0; from < n; ++from) came_[r][from] = splits[from][r];
        shape.in_splits = splits[r];
        shape.out_splits = came_[r];
        continue;
      }
      if (has_root(kind)) shape.count = splits[0][r];
      if (!has_root(kind) || int(r) == shape.root) (gives_parts(kind) ? shape.in_splits : shape.out_splits) = splits[0];
    }
  }

  Status load() {
    for (int rank = 0; rank < size_; ++rank) {
      load(rank, scenario_.plan(shapes_[std::size_t(rank)]), goal_of(scenario_.kind, shapes_, rank));
      if (outcome_.steps / std::uint64_t(rank + 1) * std::uint64_t(size_) > kMostSteps)
        return Error{.code = Code::kLimit,
                     .detail = detail::words("the plans of ", size_, " ranks have ",
                                             outcome_.steps / std::uint64_t(rank + 1) * std::uint64_t(size_),
                                             " steps; the simulator holds ", kMostSteps),
                     .hint = "take an algorithm of fewer messages, fewer ranks or fewer bytes"};
    }
    if (network_.stream_bytes != Network::kUnbounded) bounds_.resize(streams_.size());
    for (const Faults::Cut& cut : scenario_.faults.cuts) {
      for (Stream& stream : streams_) {
        if ((stream.from == cut.a && stream.to == cut.b) || (stream.from == cut.b && stream.to == cut.a))
          stream.cut_at = std::min(stream.cut_at, cut.at);
      }
    }
    for (const Faults::Death& death : scenario_.faults.deaths) push_for_rank(death.at, What::kDeath, death.rank);
    return {};
  }

  Outcome run() {
    for (int rank = 0; rank < size_; ++rank) {
      if (ranks_[rank].left == 0) outcome_.ended[rank] = 0;
      for (const std::uint32_t head : ranks_[rank].heads) ready_.push_back({rank, head});
      ranks_[rank].heads = {};
    }
    advance();
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (!events_.empty()) fetch(events_.top());
      now_ = event.time;
      outcome_.fingerprint = mix(outcome_.fingerprint ^ std::bit_cast<std::uint64_t>(event.time)) + event.subject +
                             (std::uint64_t(event.detail) << 32);
      happen(event);
      advance();
    }
    conclude();
    return std::move(outcome_);
  }

 private:
  struct alignas(64) Cell {                // a step
    std::uint64_t from, into, bytes;       // offsets
    std::uint32_t after_begin, after_end;  // its dependencies: a slice of Rank::after
    std::uint32_t stream = kNone;
    std::uint32_t next = kNone;          // the next step of its lane
    std::uint32_t first_waiter = kNone;  // head of the list of steps that wait for this one
    std::uint32_t next_waiter = kNone;   // the next step in the list that this one is in
    std::uint32_t depth = 0;             // messages in the longest chain that leads to this step
    StepKind kind;
    Area from_area, into_area;
    bool done = false;

    explicit Cell(const Step& step)
        : from(step.from.offset),
          into(step.into.offset),
          bytes(std::max(step.from.bytes, step.into.bytes)),
          after_begin(step.after_begin),
          after_end(step.after_end),
          kind(step.kind),
          from_area(step.from.area),
          into_area(step.into.area) {}
    Range source() const { return {from_area, from, bytes}; }
    Range target() const { return {into_area, into, bytes}; }
  };
  struct Port {
    double sends_free = 0, recvs_free = 0;  // times from which they are free
  };
  struct Rank {
    std::span<Cell> cells;  // allocated from the pool
    std::vector<std::uint32_t> after;
    std::vector<std::uint32_t> heads;  // first steps of its lanes, before it starts
    std::size_t left = 0;              // unfinished steps
    double died = kNever;
    double factor = 1;
    double busy_until = 0;  // with an addition or a copy
    Port port;
  };
  struct Stream {
    int from, to;
    double cut_at = kNever;
    double last_arrival = 0, last_delivery = 0;  // keeps the stream in order
    std::uint64_t there = 0;                     // bytes that have arrived and were not received
    std::uint32_t first = kNone, last = kNone;   // list of messages that were sent and not received
    std::uint32_t waiting = kNone;               // the receiver's step that waits for bytes
    bool sent = false, received = false;         // the first message, with its header
    bool lost = false;                           // nothing arrives any more
  };
  // The state of a stream that holds a limited number of bytes.
  struct Bound {
    std::uint64_t held = 0;         // bytes that were sent and not received
    std::uint64_t claimed = 0;      // bytes that the waiting receive has taken so far
    std::uint32_t blocked = kNone;  // the sender's step that ends when enough bytes are received
  };
  struct Message {
    std::uint64_t bytes;
    double sent, last_byte;  // departure from the sender; arrival if the receiver's port is free
    std::uint32_t stream;
    std::uint32_t depth;
    std::uint32_t next;
    bool delivered = false;
  };
  enum class What : std::uint8_t { kSent, kArrives, kDelivered, kComputed, kDeath };
  struct Event {
    double time;
    std::uint64_t order;            // 24 random bits, 37 bits of a counter, 3 bits of What
    std::uint32_t subject, detail;  // rank and step, or message
    What what() const { return What(order & 7); }
    bool operator<(const Event& other) const {  // makes the earliest event the top of the queue
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  static Hosts hosts_of(const Scenario& scenario) {
    if (scenario.shape.hosts) return *scenario.shape.hosts;
    return Hosts::of_sizes(std::vector<int>(std::size_t(scenario.shape.size), 1));
  }

  void load(int r, Plan plan, const Goal& goal) {
    Rank& rank = ranks_[r];
    rank.left = plan.steps.size();
    rank.cells = {std::pmr::polymorphic_allocator<Cell>(&pool_).allocate(rank.left), rank.left};
    rank.after = std::move(plan.after);
    outcome_.steps += rank.left;
    std::uint32_t local = kNone;                               // the last local step so far
    std::unordered_map<std::uint64_t, std::uint32_t> last_of;  // the last step so far, by lane
    std::uint64_t last_key[2] = {~std::uint64_t(0), ~std::uint64_t(0)};
    std::uint32_t* last_place[2] = {nullptr, nullptr};
    for (std::uint32_t i = 0; i < plan.steps.size(); ++i) {
      const Step& step = plan.steps[i];
      std::construct_at(&rank.cells[i], step);
      std::uint32_t* last = &local;
      if (step.peer >= 0) {
        const bool sends = step.kind == StepKind::kSend;
        const std::uint64_t key = std::uint64_t(sends ? r : step.peer) << 32 | std::uint32_t(sends ? step.peer : r);
        if (key != last_key[sends]) {
          last_key[sends] = key;
          last_place[sends] = &last_of.try_emplace(key, kNone).first->second;
        }
        last = last_place[sends];
        rank.cells[i].stream = *last != kNone ? rank.cells[*last].stream : stream_of(key);
        if (sends) count(r, step);
      }
      if (step.kind == StepKind::kRecvReduce || step.kind == StepKind::kReduce)
        outcome_.traffic[r].added += step.into.bytes;
      if (*last == kNone)
        rank.heads.push_back(i);
      else
        rank.cells[*last].next = i;
      *last = i;
    }
    for (const auto& contents : contents_) contents->open(goal, plan.scratch_bytes);
  }

  void count(int rank, const Step& step) {
    Outcome::Traffic& traffic = outcome_.traffic[rank];
    ++traffic.messages;
    traffic.bytes += step.from.bytes;
    if (!hosts_.same_host(rank, step.peer)) traffic.bytes_between += step.from.bytes;
  }

  std::uint32_t stream_of(std::uint64_t key) {
    const auto [at, fresh] = stream_numbers_.try_emplace(key, std::uint32_t(streams_.size()));
    if (fresh) streams_.push_back(Stream{.from = int(key >> 32), .to = int(std::uint32_t(key))});
    return at->second;
  }

  // Simultaneous events happen in the order in which they were pushed. With a seed they happen in an order drawn from
  // it, but the events of one owner (a stream or a rank) keep their order.
  void push(double time, What what, std::uint64_t owner, std::uint32_t subject, std::uint32_t detail = 0) {
    const std::uint64_t drawn =
        scenario_.seed == 0 ? 0 : mix(scenario_.seed ^ mix(owner) ^ std::bit_cast<std::uint64_t>(time));
    events_.push({time, drawn << 40 | ++pushed_ << 3 | std::uint64_t(what), subject, detail});
  }
  void push_for_rank(double time, What what, int rank, std::uint32_t step = 0) {
    push(time, what, ~std::uint64_t(rank), std::uint32_t(rank), step);
  }

  // Examines every step that has become the first of its lane or whose last known obstacle is done. Earlier steps of a
  // plan come first, as in the executor.
  void advance() {
    while (!ready_.empty()) {
      std::swap(ready_, batch_);
      std::sort(batch_.begin(), batch_.end());
      for (const auto& [rank, step] : batch_) {
        if (ranks_[rank].died > now_) start(rank, step);
      }
      batch_.clear();
    }
  }

  void start(int r, std::uint32_t i) {
    Rank& rank = ranks_[r];
    Cell& cell = rank.cells[i];
    for (std::uint32_t a = cell.after_begin; a < cell.after_end; ++a) {
      Cell& obstacle = rank.cells[rank.after[a]];
      if (!obstacle.done) {
        cell.next_waiter = obstacle.first_waiter;
        obstacle.first_waiter = i;
        return;
      }
      cell.depth = std::max(cell.depth, obstacle.depth);
    }
    switch (cell.kind) {
      case StepKind::kSend:
        return send(r, i);
      case StepKind::kRecv:
      case StepKind::kRecvReduce:
        streams_[cell.stream].waiting = i;
        return receive(cell.stream);
      case StepKind::kCopy:
        for (const auto& contents : contents_) contents->copy(r, cell.source(), cell.target());
        return compute(r, i, double(cell.bytes) / network_.copy_bandwidth);
      case StepKind::kReduce:
        for (const auto& contents : contents_) contents->reduce(r, cell.source(), cell.target());
        return compute(r, i, double(cell.bytes) / network_.add_bandwidth);
    }
  }

  void compute(int r, std::uint32_t i, double seconds) {
    Rank& rank = ranks_[r];
    if (seconds == 0) return complete(r, i);
    rank.busy_until = std::max(now_, rank.busy_until) + seconds * rank.factor;
    push_for_rank(rank.busy_until, What::kComputed, r, i);
  }

  const LinkCost& cost(const Stream& stream) const {
    return hosts_.same_host(stream.from, stream.to) ? network_.inside : network_.between;
  }
  Port& port(int rank, const Stream& stream) {
    if (hosts_.same_host(stream.from, stream.to)) return ranks_[rank].port;
    return cards_[std::size_t(hosts_.host_of(rank) * network_.cards + hosts_.place_of(rank) % network_.cards)];
  }

  void send(int r, std::uint32_t i) {
    Rank& rank = ranks_[r];
    const Cell& cell = rank.cells[i];
    const std::uint32_t number = cell.stream;
    Stream& stream = streams_[number];
    const LinkCost& link = cost(stream);
    const std::uint64_t bytes = cell.bytes + (stream.sent ? 0 : network_.header);
    stream.sent = true;
    if (!bounds_.empty()) bounds_[number].held += bytes;
    Port& from = port(r, stream);
    const double begins = std::max(now_, from.sends_free), overhead = link.overhead * rank.factor;
    const double sent = begins + overhead + double(bytes) / link.bandwidth * rank.factor;
    from.sends_free = sent;
    double latency = link.latency;
    if (network_.jitter > 0)
      latency *= 1 + network_.jitter * double(mix(scenario_.seed * 0x9e3779b97f4a7c15u + ++drawn_) >> 11) * 0x1p-53;
    stream.last_arrival = std::max(stream.last_arrival, begins + overhead + latency);

    std::uint32_t message = free_message_;
    if (message == kNone) {
      message = std::uint32_t(messages_.size());
      messages_.emplace_back();
    } else {
      free_message_ = messages_[message].next;
    }
    messages_[message] = {bytes, sent, sent + latency, number, cell.depth + 1, kNone};
    (stream.first == kNone ? stream.first : messages_[stream.last].next) = message;
    stream.last = message;
    for (const auto& contents : contents_) contents->send(r, number, cell.source());
    push_for_rank(sent, What::kSent, r, i);
    push(stream.last_arrival, What::kArrives, number, message);
  }

  // Prefetches the data of an event while another event is handled.
  void fetch(const Event& event) const {
    if (event.what() == What::kSent || event.what() == What::kComputed)
      __builtin_prefetch(&ranks_[event.subject].cells[event.detail]);
    else if (event.what() != What::kDeath)
      __builtin_prefetch(&messages_[event.subject]);
  }

  void happen(const Event& event) {
    switch (event.what()) {
      case What::kSent:
        if (!bounds_.empty()) return end_send(int(event.subject), event.detail);
        [[fallthrough]];
      case What::kComputed:
        if (ranks_[event.subject].died > now_) complete(int(event.subject), event.detail);
        return;
      case What::kArrives: {
        const Message& message = messages_[event.subject];
        Stream& stream = streams_[message.stream];
        if (ranks_[stream.from].died < message.sent) stream.lost = true;
        if (stream.lost) return;
        Port& into = port(stream.to, stream);
        const double own = double(message.bytes) / cost(stream).bandwidth * ranks_[stream.to].factor;
        into.recvs_free = std::max(now_, into.recvs_free) + own;
        stream.last_delivery = std::max({stream.last_delivery, into.recvs_free, message.last_byte});
        push(stream.last_delivery, What::kDelivered, message.stream, event.subject);
        return;
      }
      case What::kDelivered: {
        Message& message = messages_[event.subject];
        Stream& stream = streams_[message.stream];
        if (now_ >= stream.cut_at) stream.lost = true;
        if (stream.lost) return;
        message.delivered = true;
        stream.there += message.bytes;
        if (ranks_[stream.to].died > now_) receive(message.stream);
        return;
      }
      case What::kDeath:
        ranks_[event.subject].died = std::min(ranks_[event.subject].died, now_);
        return;
    }
  }

  // A send into a stream that is too full ends later, in take().
  void end_send(int r, std::uint32_t i) {
    Bound& bound = bounds_[ranks_[r].cells[i].stream];
    if (bound.held > network_.stream_bytes)
      bound.blocked = i;
    else if (ranks_[r].died > now_)
      complete(r, i);
  }

  // Takes the bytes that have arrived for the waiting receive, which needs `needs` bytes.
  void take(std::uint32_t number, std::uint64_t needs) {
    const Stream& stream = streams_[number];
    Bound& bound = bounds_[number];
    const std::uint64_t claimed = std::min(stream.there, needs);
    bound.held -= claimed - bound.claimed;
    bound.claimed = claimed == needs ? 0 : claimed;
    if (bound.blocked == kNone || bound.held > network_.stream_bytes) return;
    const std::uint32_t step = std::exchange(bound.blocked, kNone);
    if (ranks_[stream.from].died > now_) complete(stream.from, step);
  }

  // Completes the step that waits at the end of a stream, if all of its bytes have arrived.
  void receive(std::uint32_t number) {
    Stream& stream = streams_[number];
    if (stream.waiting == kNone) return;
    const std::uint32_t i = stream.waiting;
    Rank& rank = ranks_[stream.to];
    Cell& cell = rank.cells[i];
    std::uint64_t needs = cell.bytes + (stream.received ? 0 : network_.header);
    if (!bounds_.empty()) take(number, needs);
    if (stream.there < needs) return;
    stream.there -= needs;
    stream.received = true;
    stream.waiting = kNone;
    while (stream.first != kNone && messages_[stream.first].delivered) {
      Message& message = messages_[stream.first];
      const std::uint64_t some = std::min(needs, message.bytes);
      cell.depth = std::max(cell.depth, message.depth);
      needs -= some;
      message.bytes -= some;
      if (message.bytes > 0) break;  // the rest is for a later step
      const std::uint32_t empty = stream.first;
      stream.first = message.next;
      message.next = free_message_;
      free_message_ = empty;
    }
    if (cell.kind == StepKind::kRecv) {
      for (const auto& contents : contents_) contents->recv(stream.to, number, cell.target());
      return complete(stream.to, i);
    }
    for (const auto& contents : contents_) contents->recv_reduce(stream.to, number, cell.source(), cell.target());
    compute(stream.to, i, double(cell.bytes) / network_.add_bandwidth);
  }

  void complete(int r, std::uint32_t i) {
    Rank& rank = ranks_[r];
    Cell& cell = rank.cells[i];
    cell.done = true;
    outcome_.rounds = std::max(outcome_.rounds, int(cell.depth));
    const auto look_at = [&](std::uint32_t step) {
      __builtin_prefetch(&rank.cells[step]);
      ready_.push_back({r, step});
    };
    if (cell.next != kNone) look_at(cell.next);
    for (std::uint32_t waiter = cell.first_waiter; waiter != kNone; waiter = rank.cells[waiter].next_waiter)
      look_at(waiter);
    if (--rank.left == 0) outcome_.ended[r] = now_;
  }

  void conclude() {
    outcome_.finished = true;
    for (int r = 0; r < size_; ++r) {
      outcome_.finished &= outcome_.ended[r] >= 0;
      outcome_.seconds = std::max(outcome_.seconds, outcome_.ended[r]);
    }
    if (!outcome_.finished) {
      outcome_.seconds = now_;
      blame();
      return;
    }
    for (int r = 0; r < size_ && outcome_.wrong.empty(); ++r) {
      const Goal goal = goal_of(scenario_.kind, shapes_, r);
      for (const auto& contents : contents_) {
        if (auto wrong = contents->check(r, goal))
          outcome_.wrong = detail::words("rank ", r, ", ", *wrong);
        else if (scenario_.kind == Kind::kAllReduce && !contents->same_bits(r, goal))
          outcome_.wrong = detail::words("rank ", r, " added in a different order than rank 0");
        else
          continue;
        break;
      }
    }
    for (std::size_t s = 0; s < streams_.size() && outcome_.wrong.empty(); ++s) {
      if (streams_[s].there > 0)
        outcome_.wrong = detail::words("rank ", streams_[s].to, " never receives ", streams_[s].there,
                                       " bytes that rank ", streams_[s].from, " sent");
    }
  }

  void blame() {
    for (const Stream& stream : streams_) {
      if (stream.waiting == kNone || ranks_[stream.to].died <= now_) continue;
      const std::uint64_t needs =
          ranks_[stream.to].cells[stream.waiting].bytes + (stream.received ? 0 : network_.header);
      const bool dead = ranks_[stream.from].died <= now_, cut = stream.lost && stream.cut_at <= now_;
      outcome_.waiting.push_back({stream.to, stream.from, needs - stream.there,
                                  dead                              ? Waiting::Why::kDead
                                  : cut                             ? Waiting::Why::kCut
                                  : outcome_.ended[stream.from] < 0 ? Waiting::Why::kWaits
                                                                    : Waiting::Why::kNothing});
    }
    for (std::size_t s = 0; s < bounds_.size(); ++s) {
      const Stream& stream = streams_[s];
      if (bounds_[s].blocked == kNone || ranks_[stream.from].died <= now_) continue;
      outcome_.waiting.push_back(
          {stream.from, stream.to, bounds_[s].held - network_.stream_bytes, Waiting::Why::kFull});
    }
    std::sort(outcome_.waiting.begin(), outcome_.waiting.end(),
              [](const Waiting& a, const Waiting& b) { return a.rank != b.rank ? a.rank < b.rank : a.peer < b.peer; });
  }

  const Scenario& scenario_;
  std::vector<Shape> shapes_;
  std::vector<std::vector<std::size_t>> came_;  // out_splits of an all_to_all, by rank
  const Network& network_;
  const int size_;
  const Hosts hosts_;
  Pool pool_;
  std::vector<std::unique_ptr<Contents>> contents_;
  std::vector<Rank> ranks_;
  std::vector<Port> cards_;  // by host, then by card
  std::vector<Stream> streams_;
  std::vector<Bound> bounds_;                                        // by stream; empty where streams are unbounded
  std::unordered_map<std::uint64_t, std::uint32_t> stream_numbers_;  // sender << 32 | receiver
  std::vector<Message> messages_;
  std::uint32_t free_message_ = kNone;
  std::priority_queue<Event> events_;
  std::uint64_t pushed_ = 0, drawn_ = 0;
  std::vector<std::pair<int, std::uint32_t>> ready_, batch_;  // rank and step
  double now_ = 0;
  Outcome outcome_;
};

}  // namespace

Result<Outcome> simulate(const Scenario& scenario) {
  Simulator simulator(scenario);
  TUTTI_TRY(simulator.load());
  return simulator.run();
}

std::string explain(const Scenario& scenario, const Outcome& outcome) {
  if (outcome.finished) return {};
  std::vector<std::string> causes;
  for (const Faults::Death& death : scenario.faults.deaths)
    causes.push_back(detail::words("rank ", death.rank, " died at ", seconds_text(death.at)));
  std::vector<int> waiting;
  for (const Waiting& w : outcome.waiting) {
    if (waiting.empty() || waiting.back() != w.rank) waiting.push_back(w.rank);
    if (w.why == Waiting::Why::kCut)
      causes.push_back(detail::words("the link from rank ", w.peer, " to rank ", w.rank, " was cut"));
    if (w.why == Waiting::Why::kFull)
      causes.push_back(detail::words("rank ", w.rank, " cannot send to rank ", w.peer, ", which does not receive ",
                                     w.missing, " bytes"));
    if (w.why == Waiting::Why::kNothing)
      causes.push_back(detail::words("rank ", w.peer, " ended without sending ", w.missing, " bytes that rank ", w.rank,
                                     " expects"));
  }
  if (causes.empty()) causes.emplace_back("the ranks wait for one another");
  std::string text = join(causes, "; ");
  if (!waiting.empty()) text += detail::words("; ", ranks_words(waiting), waiting.size() == 1 ? " waits" : " wait");
  return text;
}

}  // namespace tutti::comm
