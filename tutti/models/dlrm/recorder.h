#pragma once
// What a run leaves behind for other programs: TensorBoard's event files, profiles, the compute graph.
#include <memory>
#include <string>

#include "tutti/base/error.h"
#include "tutti/comm/group.h"
#include "tutti/models/dlrm/architecture.h"
#include "tutti/models/dlrm/options.h"
#include "tutti/models/dlrm/printed_lines.h"

namespace tutti {
class EventFile;
}

namespace tutti::dlrm {

// Rank 0 writes; every rank calls.
class Recorder {
 public:
  // Makes the folders, so that a place that cannot be written to is told before the training. Throws Exception.
  Recorder(const Group& world, const Options& options);
  ~Recorder();

  void train_loss(double loss, std::int64_t step);
  void test_scores(const TestScores& scores, std::int64_t step);
  // OUT_DIR/dlrm_s_pytorch_graph.dot and .svg, if asked for.
  void write_graph(const Architecture& architecture) const;
  // Ends the trace and writes dlrm_s_pytorch<time>_shape.prof and _total.prof of rank 0, and the Chrome trace of all
  // ranks, if asked for. Collective.
  void write_profile() const;

 private:
  Status prepare_folders();
  std::string path(const std::string& name) const { return options_.report.out_dir + "/" + name; }

  const Group& world_;
  const Options& options_;
  std::unique_ptr<EventFile> events_;  // of rank 0, if asked for
};

}  // namespace tutti::dlrm
