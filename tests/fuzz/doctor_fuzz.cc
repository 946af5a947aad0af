// What nodes tell each other for `tutti doctor`: of themselves, what they found, what they measured of the way to
// another. What is understood survives being written.
#include "tests/fuzz/targets.h"
#include "tutti/doctor/examination.h"

namespace tutti::fuzz {
namespace {

template <class T, class Write, class Parse>
void survives(const Result<T>& value, Write write, Parse parse) {
  if (!value.ok()) return promise_sentence(value.error());
  const std::string written = write(*value);
  const auto again = parse(written);
  promise(again.ok() && write(*again) == written, "what nodes tell of themselves survives being written");
}

}  // namespace

void doctor(Input input) {
  const auto what = take(input) % 3;
  const std::string text = text_of(input);
  if (what == 0) {
    const auto note = doctor::parse_doctor_message(text);
    survives(
        note, [](const doctor::Message& n) { return encode(n); }, doctor::parse_doctor_message);
    promise(!note.ok() || note->ranks >= 1, "a node has ranks");
  } else if (what == 1) {
    const auto findings = doctor::findings_from_json(text);
    survives(
        findings, [](const std::vector<doctor::Finding>& f) { return to_json(f); }, doctor::findings_from_json);
    if (findings.ok()) (void)(to_text(*findings) + summary(*findings));
  } else {
    const auto measure = doctor::pair_measure_from_json(text);
    survives(
        measure, [](const doctor::PairMeasure& m) { return to_json(m); }, doctor::pair_measure_from_json);
    promise(!measure.ok() || (measure->from >= 0 && measure->to >= 0), "nodes have numbers");
  }
}

}  // namespace tutti::fuzz
