#pragma once
// The coordinator's table of the job's nodes: who asked to join, who takes part, who waits as a spare, who is lost; and
// when a round is complete. A pure state machine: time is an argument, and take() returns what is to be done. The
// coordinator (coordinator.h) feeds it from the store and the heartbeats, tests feed it by hand.
//
// Rules:
//   complete    The first round: as soon as MAX nodes have come. A later one: as soon as all living nodes of the last
//               round have come again, if there are MIN. Otherwise when the last call is over, which begins when the
//               MIN-th node comes and ends with the time to join at the latest.
//   minority    Nodes that fell silent may live on behind a network partition. Unless at least half of the last round's
//               nodes that did not leave are here (with the coordinator, which settles a tie), no round begins. With
//               an arbiter (coordinator.h), silent nodes that it does not hear either are dead.
//   numbers     Nodes of the last round keep their order; then newcomers by the number they ask for, then in the order
//               they came. If every node has a number of its own (--node-rank) they stand in that order.
//   standby     The node that had the copy of the store keeps it; else the first node that does not coordinate gets it.
//   growth      A node that comes while fewer than MAX take part ends the round after the last call. One too many is a
//               spare.
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/launch/membership/protocol.h"

namespace tutti::launch::membership {

struct Limits {
  int min = 1, max = 1;                           // nodes that take part
  bool numbered = false;                          // every node has a number of its own; two of one number are a mistake
  Duration join = std::chrono::minutes(5);        // from the first request to a complete round
  Duration last_call = std::chrono::seconds(30);  // for more than MIN
  Duration lost_after = std::chrono::milliseconds(2500);
  bool failover = false;  // the store has a standby if MIN nodes would remain without its primary

  bool fixed() const { return numbered && min == max; }  // the job ends with the first node that is lost
};

// What the coordinator is to do.
struct MembershipStep {
  enum class Kind {
    kComplete,  // `participants` is a round: send every node its assignment
    kRefuse,    // send `who` the `error` that keeps them out
    kEndRound,  // end round `round`, because of `text`
    kFail,      // the same by a fault; end() says what follows from it
    kSay,       // `text` is a line for people
  };
  Kind kind = Kind::kSay;
  Participants participants;
  std::vector<JoinRequest> who;
  Error error;
  int round = -1;
  std::string text;
  bool gentle = false;  // kEndRound: all nodes of the round are alive, so their ranks can save before they end
};

class MembershipTable {
 public:
  using Time = Clock::time_point;

  // `self`: the id of the coordinator's own agent.
  MembershipTable(Limits limits, std::string self, Time now);
  // Continues after `last`, which another coordinator completed; `ended`: that round is over.
  void resume(Participants last, bool ended, Time now);

  // A node asks to join. Saying it twice does no harm.
  void request_join(JoinRequest request, Time now);
  // Nothing was heard of the node for `lost_after`, or, `certain`, it is dead for sure. `how`: "is lost: nothing ...".
  void lose(const std::string& id, const std::string& how, bool certain, Time now);
  // The nodes whose number another node asks for. Either such a node is dead and the other replaces it, or the other is
  // a mistake: it is one as soon as is_alive() reports a sign of life after its request.
  std::vector<std::string> suspected() const;
  void is_alive(const std::string& id, Time when);
  void leave(const std::string& id, Time now);
  // The round is over: by a fault (with whether the job continues after it), because all ranks ended well, or by a
  // kEndRound of ours.
  void end(int round, const std::optional<Fault>& fault, bool continues, Time now);
  // A fault ended the round, though we had ended it for another reason: first wins.
  void remember(Fault fault);
  void tick(Time now);

  std::vector<MembershipStep> take();  // in this order
  bool running() const { return running_; }
  // Too few nodes of the last round are here for a next one.
  bool in_minority() const { return !running_ && !over_ && participants_.round >= 0 && minority(); }
  bool over() const { return over_; }
  const Participants& participants() const { return participants_; }  // of the newest round; round -1: none yet
  // Who has come and who is missing, for people; empty while a round runs.
  std::string waiting_text(Time now) const;
  // How many other nodes wait or take part.
  std::size_t others() const;
  bool knows(const std::string& id) const;
  std::size_t waiting() const { return waiting_.size(); }

 private:
  struct Waiting {
    JoinRequest request;
    std::size_t order;  // of arrival
  };
  struct Member {
    int node;
    bool gone = false;     // lost or left
    bool certain = false;  // and dead for sure
  };

  void say(std::string text);
  void add(JoinRequest request, Time now);
  void call_last(Time now);
  bool contradicts(const JoinRequest& request);
  void refuse(const JoinRequest& request, Error error);
  void refuse_all(Error error);
  void refuse_duplicate(const JoinRequest& duplicate, const std::string& holder);
  std::string holder_of(const JoinRequest& request) const;
  const JoinRequest* request_of(const std::string& id) const;
  void end_running(std::string text, Time now, bool gentle = false);
  void check(Time now);
  bool enough(Time now) const;
  bool minority() const;
  bool all_expected() const;
  std::vector<const Waiting*> in_order() const;
  void complete(Time now);
  std::string standby_among(const std::vector<JoinRequest>& nodes) const;
  Error too_late(Time now) const;

  const Limits limits_;
  const std::string self_;
  std::vector<MembershipStep> steps_;

  Participants participants_{.round = -1, .nodes = {}, .past = {}, .standby = {}};
  std::unordered_map<std::string, Member> members_;  // of participants_, by id
  bool running_ = false, over_ = false;

  std::unordered_map<std::string, Waiting> waiting_;  // by id
  std::map<int, std::string> numbers_;                // numbered: which of them has which number
  // Nodes that ask for a number that another node has, which may be dead and not missed yet.
  std::vector<std::pair<JoinRequest, Time>> duplicates_;
  std::optional<Error> spoiled_;  // before the first round: which node could not take part, and why
  std::size_t arrivals_ = 0;
  Time began_;                     // to wait for the next round
  std::optional<Time> last_call_;  // when it ends
  std::optional<Time> grow_;       // when the running round ends for newcomers
};

}  // namespace tutti::launch::membership
