#pragma once
// The keys of the agents in the job's store.
#include <string>

namespace tutti::keys {

inline const std::string kCoordinator = "agents/coordinator";  // who coordinates; changed by compare_set, term by term
inline const std::string kRoster = "agents/roster";            // of the newest round
inline const std::string kWaiting = "agents/waiting";          // a sentence for those that wait
inline const std::string kStore = "agents/store";              // where it is: the newest StorePair
inline const std::string kMoved = "agents/moved";    // where the job's store is, in one that has its old place
inline const std::string kFormer = "agents/former";  // where it was, with commas
// With etcd: changes for as long as the coordinator lives and may decide.
inline std::string alive(int term) { return "agents/alive/" + std::to_string(term); }
// With etcd: that agent lives, and does not hear the coordinator of the term.
inline std::string misses(int term, const std::string& id) {
  return "agents/misses/" + std::to_string(term) + "/" + id;
}
inline std::string inbox(int term) { return "agents/inbox/" + std::to_string(term); }  // queue of notes to it
inline std::string seat(const std::string& id, int visit) {                            // its answer to one of them
  return "agents/seat/" + id + "/" + std::to_string(visit);
}
inline std::string roster(int round) { return "agents/roster/" + std::to_string(round); }
inline std::string end(int round) { return "agents/end/" + std::to_string(round); }    // what ended it: first wins
inline std::string done(int round) { return "agents/done/" + std::to_string(round); }  // nodes whose ranks ended well
inline std::string leaving(int round) { return "agents/leaving/" + std::to_string(round); }  // that saved and go
inline std::string store(int round) { return "agents/store/" + std::to_string(round); }  // StorePair; etcd: its ranks'
inline std::string fault(int round) { return "generation-" + std::to_string(round) + "/fault"; }  // for its ranks

}  // namespace tutti::keys
