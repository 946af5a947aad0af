// A record of the flight recorder: what is read survives being written, and the report over it has a verdict.
#include "tests/fuzz/targets.h"
#include "tutti/trace/flight/dump.h"
#include "tutti/trace/flight/report.h"

namespace tutti::fuzz {

void flight(Input input) {
  const auto dump = trace::parse_flight_dump(text_of(input));
  if (!dump.ok()) return promise_sentence(dump.error());
  const std::string text = to_text(*dump);
  const auto again = trace::parse_flight_dump(text);
  promise(again.ok() && to_text(*again) == text, "a record survives being written");
  const trace::FlightReport report = trace::make_flight_report({*dump});
  promise(!report.verdict.empty(), "a report has a verdict");
  promise(!to_text(report).empty() && !to_json(report).empty(), "a report can be printed");
}

}  // namespace tutti::fuzz
