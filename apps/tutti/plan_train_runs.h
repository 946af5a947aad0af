#pragma once
// `tutti plan train --check` and `--calibrate`: measured steps beside predicted ones, of whatever was trained.
#include <functional>
#include <string>

#include "tutti/planning/training/agreement.h"

namespace tutti::cli {

struct RunsQuestion {
  std::string check_file, calibrate_file;  // one of the two; both empty: there are no runs
  std::string output;                      // of --calibrate: the file of the fitted cluster
  bool json = false;

  bool asked() const { return !check_file.empty() || !calibrate_file.empty(); }
  const std::string& file() const { return check_file.empty() ? calibrate_file : check_file; }
};

// The bytes of the table. As read_file().
Result<std::string> read_runs(const RunsQuestion& question);

// Compares the runs with what `cluster` predicts, and for --calibrate writes the cluster that `calibrated` returns. The
// functions know the runs.
Status answer_runs(const RunsQuestion& question, const Cluster& cluster,
                   const std::function<planning::Agreement(const Cluster&)>& compare,
                   const std::function<Cluster()>& calibrated);

}  // namespace tutti::cli
