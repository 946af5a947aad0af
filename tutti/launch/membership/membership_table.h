#pragma once
// The book that the coordinator keeps: who has come, who takes part, who waits as a spare, who is lost; and when a
// round is complete. A pure state machine: time is an argument, what is to be done comes out of take(). The coordinator
// (coordination.h) feeds it from the store and the heartbeats; the simulation feeds it by hand.
//
// Rules:
//   complete    the first round: as soon as MAX nodes have come; a later one: as soon as all who took part in the last
//               and live have come again, if there are MIN. Else once the last call is over, which begins when the
//               MIN-th comes, and ends with the time to join at the latest
//   minority    nodes that were merely not heard of may live on behind a cut. Unless at least half of those who took
//               part in the last round, and did not say goodbye, are here (with the coordinator, which settles a tie),
//               no round begins. Where the store is a witness (etcd) those that it does not hear either are dead
//   numbers     who took part keeps its place among those who did; then newcomers by the number they ask for, else as
//               they came. Where every node has a number of its own (--node-rank) they stand in that order
//   successor   who had the copy of the store keeps it; else the first node that does not coordinate gets it
//   growth      a node that comes while fewer than MAX take part ends the round after the last call; one too many is a
//               spare
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/launch/membership/messages.h"

namespace tutti {

struct Limits {
  int min = 1, max = 1;                           // nodes that take part
  bool numbered = false;                          // every node says which one it is; two of one number are a mistake
  Duration join = std::chrono::minutes(5);        // from the first that comes to a round that is complete
  Duration last_call = std::chrono::seconds(30);  // for more than MIN
  Duration lost_after = std::chrono::milliseconds(2500);
  bool witness = false;  // the store outlives all nodes, and so can tell who is dead and who is merely cut off

  bool succession = false;  // the store has a successor where MIN nodes would be left

  bool fixed() const { return numbered && min == max; }  // the job ends with the first node that is lost
};

// What the coordinator is to do.
struct MembershipStep {
  enum class Kind {
    kComplete,  // `roster` is a round: tell every node its seat
    kRefuse,    // tell `who` that `error` keeps them out
    kEndRound,  // end round `round`, because of `text`
    kFail,      // the same by a fault, of which end() tells what follows
    kSay,       // `text` is a line for people
  };
  Kind kind = Kind::kSay;
  Participants roster;
  std::vector<JoinRequest> who;
  Error error;
  int round = -1;
  std::string text;
  bool gentle = false;  // kEndRound: all who take part are there, so their ranks can save before they end
};

class MembershipTable {
 public:
  using Time = Clock::time_point;

  // `self`: the id of the coordinator's own agent.
  MembershipTable(Limits limits, std::string self, Time now);
  // Goes on after `last`, which another coordinator brought together; `ended`: that round is over.
  void resume(Participants last, bool ended, Time now);

  void come(JoinRequest comer, Time now);
  // Nothing was heard of it for `lost_after`; or, `certain`, it is dead for sure. `how`: "is lost: nothing ...".
  void lose(const std::string& id, const std::string& how, bool certain, Time now);
  // Who has a number that another asks for: is it dead, and that one its successor? As soon as is_alive() is told of a
  // moment after that one came, it is a mistake.
  std::vector<std::string> doubted() const;
  void is_alive(const std::string& id, Time when, Time now);
  // It said goodbye.
  void leave(const std::string& id, Time now);
  // The round is over: a fault (with what the job goes on to, if it does), all ranks ended well, or a kEndRound of
  // ours.
  void end(int round, const std::optional<Fault>& fault, bool goes_on, Time now);
  // A fault ended the round, though we had ended it for another reason: first wins.
  void remember(Fault fault);
  void tick(Time now);

  std::vector<MembershipStep> take();  // in this order
  bool running() const { return running_; }
  // Too few of the last round are here for a next one.
  bool in_minority() const { return !running_ && !over_ && roster_.round >= 0 && minority(); }
  bool over() const { return over_; }
  const Participants& roster() const { return roster_; }  // of the last round that was complete; round -1: none
  // Who has come and who is missing, for people; empty while a round runs.
  std::string waiting_words(Time now) const;
  // The others that are here, or take part.
  std::size_t others() const;
  bool knows(const std::string& id) const;
  std::size_t waiting() const { return here_.size(); }

 private:
  struct Here {
    JoinRequest comer;
    std::size_t order;  // of arrival
    Time since;
  };
  struct Member {
    int node;
    bool gone = false;     // lost or left
    bool certain = false;  // and dead for sure
  };

  void say(std::string text);
  void add(JoinRequest comer, Time now);
  void call_last(Time now);
  bool contradicts(const JoinRequest& comer);
  void refuse(const JoinRequest& comer, Error error, Time now);
  void refuse_all(Error error);
  void refuse_twin(const JoinRequest& twin, const std::string& holder, Time now);
  std::string holder_of(const JoinRequest& comer) const;
  const JoinRequest* comer_of(const std::string& id) const;
  void end_running(std::string text, Time now, bool gentle = false);
  void check(Time now);
  bool enough(Time now) const;
  bool minority() const;
  bool all_expected() const;
  std::vector<const Here*> in_order() const;
  void complete(Time now);
  std::string successor_among(const std::vector<JoinRequest>& nodes) const;
  Error too_late(Time now) const;

  const Limits limits_;
  const std::string self_;
  std::vector<MembershipStep> steps_;

  Participants roster_{.round = -1, .nodes = {}, .past = {}, .successor = {}};
  std::unordered_map<std::string, Member> members_;  // of roster_, by id
  bool running_ = false, over_ = false;

  std::unordered_map<std::string, Here> here_;  // who waits, by id
  std::map<int, std::string> numbers_;          // numbered: who of them has which
  std::vector<std::pair<JoinRequest, Time>>
      twins_;                     // asked for a number that another has, who may just not be missed yet
  std::optional<Error> spoiled_;  // before the first round: who could not take part, and why
  std::size_t arrivals_ = 0;
  Time began_;                     // of this gathering
  std::optional<Time> last_call_;  // when it ends
  std::optional<Time> grow_;       // when the running round ends for newcomers
};

}  // namespace tutti
