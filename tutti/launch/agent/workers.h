#pragma once
// The workers of one node in one attempt: started together, ended together.
#include <vector>

#include "tutti/base/env.h"
#include "tutti/launch/agent.h"
#include "tutti/launch/agent/consoles.h"
#include "tutti/launch/agent/worker.h"
#include "tutti/launch/membership/rendezvous.h"

namespace tutti {

class Workers {
 public:
  // Starts the ranks of this node; `flight_folder`: where they write their flight records. What of them is running
  // stays in `this` on error.
  Status start(const AgentSpec& spec, const Round& round, const std::string& flight_folder,
               const Environment& environment, Consoles& consoles);

  auto begin() { return workers_.begin(); }
  auto end() { return workers_.end(); }
  bool any_alive() const { return alive() > 0; }
  int alive() const;
  std::vector<WorkerEnd> ends() const;

  void listen(PollSet& events);
  // Those that have ended since the last look, the likelier cause first; strangers that came to us are reaped too.
  std::vector<Worker*> reap();

  void signal_alone(int signal);
  // Asks all to save and leave, in their progress pages: also those that do not hear a signal yet.
  void request_stop(int signal);
  void stop_groups(int signal);
  void continue_groups();  // a stopped process takes no signal but SIGKILL

 private:
  Status start_one(const AgentSpec& spec, const Round& round, int local_rank, const std::string& flight_folder,
                   Environment environment, Consoles& consoles);

  std::vector<Worker> workers_;
};

}  // namespace tutti
