// The times of a step of a pipeline as somebody's file has them: what is taken survives being written, and can be
// drawn, in a picture of bounded width, whatever the times are.
#include <algorithm>

#include "tests/fuzz/targets.h"
#include "tutti/planning/schedules/drawing.h"
#include "tutti/planning/schedules/measured.h"

namespace tutti::fuzz {
namespace {

bool same(const Timeline& a, const Timeline& b) {
  const auto equal = [](const TimedAction& x, const TimedAction& y) {
    return x.action == y.action && x.begin == y.begin && x.end == y.end;
  };
  return a.chunks == b.chunks &&
         std::equal(a.ranks.begin(), a.ranks.end(), b.ranks.begin(), b.ranks.end(), [&](const auto& x, const auto& y) {
           return std::equal(x.begin(), x.end(), y.begin(), y.end(), equal);
         });
}

}  // namespace

void measured(Input input) {
  const auto pipeline = measured_pipeline(text_of(input));
  if (!pipeline.ok()) return promise_sentence(pipeline.error());
  const auto again = measured_pipeline(to_json(*pipeline));
  promise(again.ok() && again->title == pipeline->title && same(again->timeline, pipeline->timeline),
          "a measured pipeline survives being written");
  promise(pipeline->timeline.length() > 0, "what is taken has time in it");
  promise(draw_text(pipeline->timeline).size() <= pipeline->timeline.ranks.size() * 300, "a row fits a terminal");
  promise(draw_text(pipeline->timeline, 10).find("rank") == 0, "there is a row for each rank");
  promise(draw_svg(pipeline->timeline, pipeline->title, true).ends_with("</svg>\n"), "a picture is whole");
}

}  // namespace tutti::fuzz
