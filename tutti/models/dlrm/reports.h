#pragma once
// What a run of train_dlrm writes for other programs, under the names of dlrm_s_pytorch.py: profiles, a compute graph,
// TensorBoard files.
#include "tutti/comm/group.h"
#include "tutti/models/dlrm/architecture.h"
#include "tutti/models/dlrm/options.h"
#include "tutti/training/recorder.h"

namespace tutti::dlrm {

// OUT_DIR/TENSOR_BOARD of rank 0, and of --enable-profiling dlrm_s_pytorch<time>_shape.prof and _total.prof of rank 0,
// and the Chrome trace of all ranks. `world` has to stay.
RecorderOptions recorder_options(const Group& world, const ReportOptions& report);
// OUT_DIR/dlrm_s_pytorch_graph.dot and .svg, if asked for, from rank 0. Throws Exception.
void write_graph(const Group& world, const ReportOptions& report, const Architecture& architecture);

}  // namespace tutti::dlrm
