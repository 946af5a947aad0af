#pragma once
// A measured Timeline as text, to be drawn later: `tutti plan pipeline --measured FILE`.
#include <string>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/planning/schedules/timeline.h"

namespace tutti {

struct MeasuredPipeline {
  std::string title;  // description of the run, one line
  Timeline timeline;  // in seconds
};

// One JSON object: {"tutti_pipeline": 1, "title": ..., "chunks": 2, "ranks": [[["F0a", begin, end], ...], ...]}
std::string to_json(const MeasuredPipeline& measured);
// Rejects any other text. The error names the position and the reason.
Result<MeasuredPipeline> measured_pipeline(std::string_view json);

}  // namespace tutti
