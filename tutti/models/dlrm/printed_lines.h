#pragma once
// The lines of dlrm_s_pytorch.py, to the letter: scripts read them.
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/models/dlrm/architecture.h"

namespace tutti::dlrm {

struct Progress {
  std::int64_t batch = 0, batches = 0, epoch = 0;  // `batch` counts from 1, `epoch` from 0
};

struct TestScores {
  double accuracy = 0, best_accuracy = 0;  // in [0, 1]
  bool ranked = false;                     // whether the rest is known (--mlperf-logging)
  double recall = 0, precision = 0, f1 = 0, average_precision = 0, auc = 0, best_auc = 0;
};

// ms: -1 where nobody measures. wall_time: " (14:05)", or nothing.
std::string progress_line(const Progress& progress, bool inference, double ms, double loss,
                          const std::string& wall_time);
std::string testing_line(const Progress& progress);
std::string scores_line(const TestScores& scores);
std::string world_line(int size, int rank, int local_rank);
// What --debug-mode prints first.
std::string architecture_text(const Architecture& architecture, const std::vector<std::int64_t>& dims);
// The layers, as print(model) shows them.
std::string model_text(const Architecture& architecture);

}  // namespace tutti::dlrm
