#pragma once
// A measured Timeline as text, so that a picture can be drawn of it later: `tutti plan pipeline --measured FILE`.
#include <string>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/planning/schedules/timeline.h"

namespace tutti {

struct MeasuredPipeline {
  std::string title;  // what it is of, one line
  Timeline timeline;  // in seconds
};

// One JSON object: {"tutti_pipeline": 1, "title": ..., "chunks": 2, "ranks": [[["F0a", begin, end], ...], ...]}
std::string to_json(const MeasuredPipeline& measured);
// What is not such an object is refused with where and why.
Result<MeasuredPipeline> measured_pipeline(std::string_view json);

}  // namespace tutti
