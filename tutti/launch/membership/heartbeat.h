#pragma once
// Heartbeats between an agent and the coordinator, as UDP echoes. A datagram (protocol.h) carries the sender's clock
// and returns the newest clock value that it has from the other side. What comes back proves to each side, by its own
// clock, that at that moment both directions were open and the other side alive. A heartbeat without an echo would not
// notice a cut in one direction.
//
// Each side is a pure state machine, which tests drive with a clock of their own, and a thread with a socket around it:
// HeartbeatTable in a HeartbeatCenter for the coordinator, HeartbeatClient in a Heartbeat for an agent.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/fd.h"
#include "tutti/base/mutex.h"
#include "tutti/launch/membership/protocol.h"

namespace tutti::launch::membership {

struct HeartbeatTimes {
  Duration period = std::chrono::milliseconds(200);
  Duration lost_after = std::chrono::milliseconds(2500);
};

// One side's view of the other, by its own clock.
class Liveness {
 public:
  explicit Liveness(Clock::time_point now) : proven_(now) {}
  // A clock value of our own has come back. An impossible one proves nothing.
  void prove(std::uint64_t own_clock, Clock::time_point now);
  // This process did not run: the other side had no chance to be heard.
  void slept(Duration time) { proven_ += time; }
  Duration silence(Clock::time_point now) const { return now - proven_; }
  // The last moment at which it is known to have lived; slept() does not count. None: it was never heard.
  std::optional<Clock::time_point> heard() const { return heard_; }

 private:
  std::optional<Clock::time_point> heard_;
  Clock::time_point proven_;
};

// ---- the coordinator's side ----

// An agent whose heartbeats do not come any more.
struct SilentAgent {
  std::uint64_t id;
  Duration silence;
  bool certain;  // its host says that no process has its port any more
};

class HeartbeatTable {
 public:
  using Time = Clock::time_point;
  using Socket = std::vector<std::byte>;  // a sockaddr
  enum class Role {
    kCoordinator,
    kVotes,  // of a standby: takes votes only, so its echoes are no sign of life of a coordinator
  };
  HeartbeatTable(HeartbeatTimes times, Role role) : times_(times), role_(role) {}

  void expect(std::uint64_t id, Time now);                // its silence counts from here
  void forget(std::uint64_t id);                          // it is answered that it is out
  void set_round(std::int32_t round) { round_ = round; }  // agents in an earlier round are out
  // From now on every agent is asked for its vote in that round; -1: for none.
  void ask_votes(std::int32_t round) { asked_ = round; }
  // Nobody may count on this side: agents in a round are answered that they are out.
  void set_partitioned(bool partitioned) { partitioned_ = partitioned; }

  // A ping came from that socket: the echo to send there.
  std::optional<Datagram> receive(const Datagram& ping, const Socket& from, Time now);
  // The host of that socket says that no process has the port.
  void refused(const Socket& by);
  // What to send to agents that are silent, so that the host of a dead one has something to refuse.
  std::vector<std::pair<Socket, Datagram>> questions(Time now);
  void slept(Duration time);

  std::vector<SilentAgent> silent(Time now) const;
  // The last moment at which an expected agent is known to have lived.
  std::optional<Time> heard(std::uint64_t id) const;
  // The agents that voted for this side in that round; known only of the newest round in which any did.
  std::set<std::uint64_t> votes(std::int32_t round) const;

 private:
  struct Peer {
    Liveness life;
    std::uint64_t clock = 0;  // its newest
    Socket socket;            // where its newest datagram came from
    Time asked{};
    bool refused = false;
  };
  Datagram echo(std::uint64_t id, std::uint64_t clock, std::int32_t round, bool out, Time now) const;

  const HeartbeatTimes times_;
  const Role role_;
  std::unordered_map<std::uint64_t, Peer> peers_;
  std::int32_t round_ = -1, asked_ = -1, vote_round_ = -1;
  std::set<std::uint64_t> votes_;  // in vote_round_
  bool partitioned_ = false;
};

// Threads: any; it runs one of its own.
class HeartbeatCenter {
 public:
  // At `host`; the port is `port` if that is free, else any.
  static Result<std::unique_ptr<HeartbeatCenter>> open(const std::string& host, std::uint16_t port,
                                                       const transport::Credentials& credentials, HeartbeatTimes times,
                                                       HeartbeatTable::Role role = HeartbeatTable::Role::kCoordinator);
  ~HeartbeatCenter();

  const std::string& address() const { return address_; }
  // As those of HeartbeatTable.
  void expect(std::uint64_t id);
  void forget(std::uint64_t id);
  void set_round(std::int32_t round);
  void ask_votes(std::int32_t round);
  void set_partitioned(bool partitioned);
  std::vector<SilentAgent> silent() const;
  std::optional<Clock::time_point> heard(std::uint64_t id) const;
  std::set<std::uint64_t> votes(std::int32_t round) const;

 private:
  HeartbeatCenter(Fd socket, std::string address, const crypto::Digest& key, HeartbeatTimes times,
                  HeartbeatTable::Role role);
  void run();
  void read_refusals();
  void receive();
  void ask_silent();
  void send(const Datagram& datagram, const HeartbeatTable::Socket& to);

  const Fd socket_;
  const std::string address_;
  const crypto::Digest key_;
  const Duration period_;
  const Fd stop_;
  mutable Mutex mutex_;
  HeartbeatTable table_ TUTTI_GUARDED_BY(mutex_);
  std::thread thread_;
};

// ---- an agent's side ----

// Gives this agent's vote in that round to one candidate; false: the other one has it (failover.h).
using Voter = std::function<bool(std::int32_t round)>;

enum class HeartbeatState {
  kWell,
  kSilent,  // nothing came back for `lost_after`
  kGone,    // the coordinator's host says that no process has its port any more
  kOut,     // the coordinator does not count on this agent any more
};

class HeartbeatClient {
 public:
  using Time = Clock::time_point;
  // `voter`: none: this agent has no vote.
  HeartbeatClient(std::uint64_t id, HeartbeatTimes times, Voter voter, Time now)
      : id_(id), times_(times), voter_(std::move(voter)), life_(now) {}

  void set_round(std::int32_t round);  // -1: waits
  void receive(const Datagram& echo, Time now);
  void refused(Time now);  // by the coordinator's host
  // The ping that is due, if one is; and judges the silence. To be called by next_turn().
  std::optional<Datagram> tick(Time now);
  Time next_turn() const { return next_; }
  void slept(Duration time) { life_.slept(time); }

  HeartbeatState state() const { return state_; }
  bool ever_heard() const { return heard_; }
  Duration silence(Time now) const { return life_.silence(now); }

 private:
  void judge(Time now);

  const std::uint64_t id_;
  const HeartbeatTimes times_;
  const Voter voter_;
  Liveness life_;
  HeartbeatState state_ = HeartbeatState::kWell;
  std::int32_t round_ = -1, vote_ = -1;
  std::uint64_t clock_ = 0;  // the coordinator's newest
  bool heard_ = false;
  std::optional<Time> refused_;
  Time next_{};
};

// Threads: any; it runs one of its own.
class Heartbeat {
 public:
  // `voter` is called from the thread.
  static Result<std::unique_ptr<Heartbeat>> open(const std::string& center, std::uint64_t id,
                                                 const transport::Credentials& credentials, HeartbeatTimes times,
                                                 Voter voter = {});
  ~Heartbeat();

  void set_round(std::int32_t round);
  HeartbeatState state() const;
  bool lost() const;  // kSilent or kGone
  bool ever_heard() const;
  Duration silence() const;
  int fd() const { return changed_.get(); }  // readable when state() is not kWell
  const std::string& center() const { return center_; }

 private:
  Heartbeat(Fd socket, std::string center, const crypto::Digest& key, HeartbeatClient client);
  void run();
  Clock::time_point turn();
  void receive() TUTTI_REQUIRES(mutex_);

  const Fd socket_;
  const std::string center_;
  const crypto::Digest key_;
  const Fd stop_, changed_;
  mutable Mutex mutex_;
  HeartbeatClient client_ TUTTI_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tutti::launch::membership
