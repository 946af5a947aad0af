#pragma once
// Heartbeats between an agent and the coordinator, as UDP echoes. A datagram carries the sender's clock and gives back
// the newest clock value that it has from the other side; what comes back proves, to each side by its own clock, that
// at that moment the way there *and* back was open and the other side alive. A send-only heartbeat would not notice a
// cut in one direction.
//
//   datagram, 64 bytes, little-endian:  "tuttiP2\0" | u8 kind | u8 out | u16 0 | i32 round | u64 id of the agent |
//                                       u64 own clock | u64 the other's | i32 voice | u32 0 |
//                                       16 bytes of HMAC-SHA256 over what precedes
//
// The voices by which the nodes decide who goes on with their store (ballot.h) travel with them.
//
// The key follows from the job's secret, so nobody else can keep a dead node alive. A datagram that is sent again
// gives back an old clock value and proves nothing new.
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
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
#include "tutti/launch/membership/vote.h"
#include "tutti/transport/crypto.h"
#include "tutti/transport/handshake.h"

namespace tutti {

struct HeartbeatTimes {
  Duration period = std::chrono::milliseconds(200);
  Duration lost_after = std::chrono::milliseconds(2500);
};

namespace pulse {

inline constexpr std::size_t kBytes = 64;
struct Datagram {
  enum class Kind : std::uint8_t { kPing = 1, kEcho = 2, kBallot = 3 } kind = Kind::kPing;
  bool out = false;  // echo: the coordinator does not count on this agent in `round`, which is the ping's
  std::int32_t round = -1;
  std::uint64_t id = 0;
  std::uint64_t own = 0, other = 0;
  std::int32_t voice = -1;  // echo: the agent's voice in that round is asked for; ping: it is given

  bool operator==(const Datagram&) const = default;
};
crypto::Digest key_of(const Credentials& credentials);
std::array<std::byte, kBytes> encode(const Datagram& datagram, const crypto::Digest& key);
std::optional<Datagram> decode(std::span<const std::byte> bytes, const crypto::Digest& key);

// One side's view of the other, by its own clock.
class Life {
 public:
  explicit Life(Clock::time_point now) : proven_(now) {}
  // An own clock value has come back. One that cannot be is no proof.
  void prove(std::uint64_t own_clock, Clock::time_point now);
  // We have slept: the other had no chance to be heard.
  void slept(Duration time) { proven_ += time; }
  Duration silence(Clock::time_point now) const { return now - proven_; }
  // It lived at that moment; nothing is forgiven here. None: it was never heard.
  std::optional<Clock::time_point> heard() const { return heard_; }

 private:
  std::optional<Clock::time_point> heard_;
  Clock::time_point proven_;
};

}  // namespace pulse

// Who calls turn(): a thread that the constructor starts, or the owner, as tests do, which have their own clock.
enum class HeartbeatTurns { kOfThread, kOfOwner };

// The coordinator's side: answers all agents, and knows who is silent. Threads: any; it runs one of its own.
class HeartbeatCenter {
 public:
  enum class Part {
    kCoordinator,
    kBallotBox,  // takes voices only: its answers (kBallot) are no sign of life of a coordinator
  };
  // At `host`; the port is `port` if that is free, else any.
  static Result<std::unique_ptr<HeartbeatCenter>> open(const std::string& host, std::uint16_t port,
                                                       const Credentials& credentials, HeartbeatTimes times,
                                                       Part part = Part::kCoordinator,
                                                       HeartbeatTurns turns = HeartbeatTurns::kOfThread);
  ~HeartbeatCenter();

  std::string address() const { return address_; }
  void expect(std::uint64_t id);                          // from now on; silence counts from here
  void forget(std::uint64_t id);                          // it is told that it is out
  void set_round(std::int32_t round) { round_ = round; }  // who is in an earlier one is out

  struct Silent {
    std::uint64_t id;
    Duration silence;
    bool certain;  // its host says that nobody listens there any more
  };
  std::vector<Silent> silent(Clock::time_point time = now()) const;
  // The last moment at which it is known to have lived, if it is expected and was heard.
  std::optional<Clock::time_point> heard(std::uint64_t id) const;

  // From now on every agent that is heard is asked for its voice in that round; -1: none.
  void ask_voices(std::int32_t round) { asked_ = round; }
  // Who has given it, for this round; known only of the newest for which any came.
  std::set<std::uint64_t> voices(std::int32_t round) const;
  // Nobody may count on this side: whoever is in a round is told that it is out.
  void set_adrift(bool adrift) { adrift_ = adrift; }

  // Answers what has come, and asks who is silent. Once a period, and when socket() is readable.
  void turn(Clock::time_point time);
  int socket() const { return socket_.get(); }

 private:
  struct Peer {
    pulse::Life life;
    std::uint64_t clock = 0;         // its newest
    std::vector<std::byte> address;  // where its newest datagram came from
    Clock::time_point asked{};
    bool refused = false;
  };
  HeartbeatCenter(Fd socket, std::string address, const crypto::Digest& key, HeartbeatTimes times, Part part,
                  HeartbeatTurns turns);
  void run();
  void receive(Clock::time_point time);
  void read_refusals();
  void ask_silent(Clock::time_point time);
  void send(std::uint64_t id, const Peer& peer, std::span<const std::byte> to, std::int32_t round, bool out,
            Clock::time_point time);

  const Fd socket_;
  const std::string address_;
  const crypto::Digest key_;
  const HeartbeatTimes times_;
  const Part part_;
  Fd stop_;
  std::atomic<std::int32_t> round_{-1}, asked_{-1};
  std::atomic<bool> adrift_{false};
  mutable Mutex mutex_;
  std::unordered_map<std::uint64_t, Peer> peers_ TUTTI_GUARDED_BY(mutex_);
  std::int32_t voice_round_ TUTTI_GUARDED_BY(mutex_) = -1;
  std::set<std::uint64_t> voices_ TUTTI_GUARDED_BY(mutex_);
  std::thread thread_;
};

// An agent's side. Threads: any; it runs one of its own.
class Heartbeat {
 public:
  // `voter`: gives this agent's voice to the center if it asks for it and may have it; none: it has no voice.
  static Result<std::unique_ptr<Heartbeat>> open(const std::string& center, std::uint64_t id,
                                                 const Credentials& credentials, HeartbeatTimes times, Voter voter = {},
                                                 HeartbeatTurns turns = HeartbeatTurns::kOfThread);
  ~Heartbeat();

  void set_round(std::int32_t round);  // -1: waits
  enum class State {
    kWell,
    kSilent,  // nothing came back for `lost_after`
    kGone,    // its host says that nobody listens there any more
    kOut,     // the coordinator does not count on us any more
  };
  State state() const { return state_; }
  bool ever_heard() const { return ever_heard_; }
  Duration silence() const;
  int descriptor() const { return news_.get(); }  // readable when state() is not kWell
  const std::string& center() const { return center_; }

  // Takes what has come, sends what is due, and judges the silence. By next_turn(), and when socket() is readable.
  void turn(Clock::time_point time);
  Clock::time_point next_turn() const { return next_; }
  int socket() const { return socket_.get(); }

 private:
  Heartbeat(Fd socket, std::string center, std::uint64_t id, const crypto::Digest& key, HeartbeatTimes times,
            Voter voter, HeartbeatTurns turns);
  void run();
  void receive(Clock::time_point time);
  void become(State state);

  const Fd socket_;
  const std::string center_;
  const std::uint64_t id_;
  const crypto::Digest key_;
  const HeartbeatTimes times_;
  const Voter voter_;
  Fd stop_, news_;
  std::atomic<std::int32_t> round_{-1}, voice_{-1};
  std::atomic<State> state_{State::kWell};
  std::atomic<bool> ever_heard_{false};
  mutable Mutex mutex_;
  pulse::Life life_ TUTTI_GUARDED_BY(mutex_);
  std::uint64_t clock_ = 0;  // the coordinator's newest; of the thread
  std::optional<Clock::time_point> refused_;
  Clock::time_point next_{};
  std::thread thread_;
};

}  // namespace tutti
