#pragma once
// The command line of train_dlrm: the options of dlrm_s_pytorch.py, and ours.
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/checkpoint/job_checkpoints.h"
#include "tutti/models/dlrm/options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tutti::cli {

struct DlrmCommand {
  dlrm::Options options;
  JobCheckpointOptions checkpoints;
};

class DlrmCommandLine {
 public:
  // Binds all options to `app`; this has to outlive the parsing.
  void declare(CLI::App& app);
  // What the options mean: each by itself, then which contradict each other. kUsage.
  Result<DlrmCommand> interpret() const;
  // Name and text of every option that all ranks must have alike.
  std::vector<std::pair<std::string, std::string>> texts() const;

 private:
  Result<JobCheckpointOptions> checkpoints() const;

  std::map<std::string, std::string> values_;
  std::map<std::string, bool> flags_;
  std::string unused_;
  std::map<std::string, const CLI::Option*> legacy_;
};

}  // namespace tutti::cli
