#pragma once
// The agents of a job's nodes, as they meet in the store: who runs how many ranks, and what ended the job.
#include <optional>
#include <string>

namespace tutti {

// Why a job ends: the first one told wins on every node.
struct Fault {
  std::string text;  // "rank 2 (pid 8123 on host) was killed by SIGKILL"
  int code = 1;      // the exit code of the job
};

class Nodes {
 public:
  virtual ~Nodes() = default;
  // Readable when another node has told of a fault, or has been lost.
  virtual int wake_descriptor() const = 0;
  virtual std::optional<Fault> remote_fault() = 0;
  // Tells every rank and every agent; false if another fault was there first (remote_fault() then has it).
  virtual bool publish(const Fault& fault) = 0;
};

}  // namespace tutti
