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

class DlrmCommandLine {
 public:
  // Binds all options to `app`; this has to outlive the parsing.
  void declare(CLI::App& app);
  // What the options mean: each for itself, then what contradicts what. kUsage.
  Result<dlrm::Options> interpret() const;
  // --save-dir, --save-interval, --keep, --keep-every, --resume, --memory-copy-interval; `options`: of interpret().
  // kUsage.
  Result<JobCheckpointOptions> checkpoints(const dlrm::Options& options) const;
  // Name and text of every option that all ranks must have alike.
  std::vector<std::pair<std::string, std::string>> texts() const;

 private:
  std::map<std::string, std::string> values_;
  std::map<std::string, bool> flags_;
  std::string unused_;
  std::map<std::string, const CLI::Option*> legacy_;
};

}  // namespace tutti::cli
