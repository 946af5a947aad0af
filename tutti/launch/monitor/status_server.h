#pragma once
// Serves `tutti status` and `tutti top`, which ask a running job how it is doing: a Unix socket in the user's runtime
// folder, which other users cannot enter. A client of this user or of root gets the answer, then the connection is
// closed.
//
// Threads: one, the agent's.
#include <sys/types.h>

#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/launch/agent/events.h"
#include "tutti/transport/socket.h"

namespace tutti::launch {

class StatusServer {
 public:
  // None: no answer yet; the server asks again.
  using Answer = std::function<std::optional<std::string>(Clock::time_point asked)>;

  // The job runs without it as well: `trouble()` says what prevents serving.
  StatusServer(const std::string& job, int node, Answer answer);
  StatusServer(const StatusServer&) = delete;
  ~StatusServer();

  const std::string& trouble() const { return trouble_; }
  void listen(PollSet& events);

 private:
  struct Client {
    Fd fd;
    Clock::time_point asked;
    std::optional<std::string> answer;
    std::size_t sent = 0;
    bool over = false;
  };
  void take_client();
  void serve(Client& client);

  Answer answer_;
  std::string trouble_, path_;
  std::optional<transport::Listener> listener_;
  std::list<Client> clients_;
  Clock::time_point closed_until_{};  // no descriptor was free for a client
};

// The sockets of the jobs of this user on this host, newest first. Those of dead agents are among them.
struct StatusSocket {
  std::string job_file;  // the name of the job as part of a file name (file_name_of)
  int node = 0;          // of the job, when the agent began
  int agent = 0;         // its pid
  std::string path;
};
std::vector<StatusSocket> status_sockets();
// Removes those of an agent that was killed.
void remove_status_sockets(pid_t agent);
// The answer of the agent behind that socket. kUnreachable: no agent is there.
Result<std::string> ask_status(const std::string& path, Deadline deadline);

}  // namespace tutti::launch
