#include "tutti/doctor/doctor_note.h"

#include <nlohmann/json.hpp>

namespace tutti {
namespace {

constexpr int kMostRanks = 1 << 20;  // of a node

}  // namespace

std::string encode(const DoctorNote& note) {
  return nlohmann::json{{"host", note.host},
                        {"version", note.version},
                        {"ranks", note.ranks},
                        {"stream", to_string(note.target.stream)},
                        {"datagrams", to_string(note.target.datagrams)},
                        {"findings", to_json(note.findings)}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<DoctorNote> parse_doctor_note(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  bool whole = json.is_object();
  const auto words = [&](const char* member) {
    const auto found = whole ? json.find(member) : json.end();
    whole = whole && found != json.end() && found->is_string();
    return whole ? found->get<std::string>() : std::string();
  };
  DoctorNote note;
  note.host = words("host");
  note.version = words("version");
  const std::string stream = words("stream"), datagrams = words("datagrams"), findings = words("findings");
  whole = whole && json.contains("ranks") && json["ranks"].is_number_integer() && json["ranks"] >= 1 &&
          json["ranks"] <= kMostRanks;
  if (!whole)
    return Error{.code = Code::kCorrupt,
                 .detail = "what a node says of itself cannot be read",
                 .hint = "run the same version of tutti on all hosts"};
  note.ranks = json["ranks"].get<int>();
  note.target = {TUTTI_TRY(parse_address(stream)), TUTTI_TRY(parse_address(datagrams))};
  note.findings = TUTTI_TRY(findings_from_json(findings));
  return note;
}

}  // namespace tutti
