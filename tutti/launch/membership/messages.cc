// JSON, because these words are few, are read by people who look into the store, and grow with versions: a field that
// is missing has its default, one that is not known is passed over.
#include "tutti/launch/membership/messages.h"

#include <nlohmann/json.hpp>

#include "tutti/base/text.h"
#include "tutti/launch/membership/round.h"

namespace tutti {
namespace {

using nlohmann::json;

std::string to_text(const json& value) {  // a host name need not be UTF-8
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json parse(const std::string& text) { return json::parse(text, nullptr, /*allow_exceptions=*/false); }

int number(const json& object, const char* name, int otherwise) {
  const auto at = object.find(name);
  if (at == object.end() || !at->is_number_integer()) return otherwise;
  if (at->is_number_unsigned() && at->get<std::uint64_t>() > std::uint64_t(INT32_MAX)) return otherwise;
  const auto value = at->get<std::int64_t>();
  return value >= -1 && value <= INT32_MAX ? int(value) : otherwise;
}

std::string word(const json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

json to_json(const JoinRequest& comer) {
  return {{"id", comer.id},   {"visit", comer.visit}, {"wanted", comer.wanted},   {"min", comer.min},
          {"max", comer.max}, {"port", comer.port},   {"last", comer.last_round}, {"note", parse(encode(comer.note))}};
}

std::optional<JoinRequest> from_json(const json& object) {
  if (!object.is_object() || !object.contains("note")) return {};
  auto note = parse_roll_note(object["note"].dump());
  JoinRequest comer{.id = word(object, "id"),
                    .visit = number(object, "visit", 0),
                    .wanted = number(object, "wanted", -1),
                    .min = number(object, "min", 1),
                    .max = number(object, "max", 1),
                    .port = number(object, "port", 0),
                    .last_round = number(object, "last", -1)};
  if (!note || comer.id.empty()) return {};
  comer.note = *std::move(note);
  return comer;
}

// "c at 10.0.0.3"
std::string place_words(const RollNote& note) {
  return note.host + (note.address.empty() ? "" : " at " + note.address);
}

}  // namespace

std::uint64_t number_of(const std::string& id) { return std::strtoull(id.c_str(), nullptr, 16); }

std::string id_of(std::uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

std::string encode(const JoinRequest& comer) { return to_text(to_json(comer)); }
std::optional<JoinRequest> parse_comer(const std::string& text) { return from_json(parse(text)); }

std::string words(const JoinRequest& comer) {
  if (comer.wanted >= 0) return words(comer, comer.wanted);
  return place_words(comer.note);
}

std::string words(const JoinRequest& comer, int node) {
  return "node " + std::to_string(node) + " (" + place_words(comer.note) + ")";
}

std::string words_with_pid(const JoinRequest& comer) {
  const std::string place =
      place_words(comer.note) + (comer.note.pid == 0 ? "" : ", pid " + std::to_string(comer.note.pid));
  return comer.wanted < 0 ? place : "node " + std::to_string(comer.wanted) + " (" + place + ")";
}

std::string encode(const Participants& roster) {
  json nodes = json::array(), past = json::array();
  for (const JoinRequest& comer : roster.nodes) nodes.push_back(to_json(comer));
  for (const Fault& fault : roster.past) past.push_back(encode_end(fault));
  return to_text({{"round", roster.round},
                  {"nodes", std::move(nodes)},
                  {"past", std::move(past)},
                  {"successor", roster.successor}});
}

std::optional<Participants> parse_roster(const std::string& text) {
  const json object = parse(text);
  if (!object.is_object() || !object.contains("nodes") || !object["nodes"].is_array()) return {};
  Participants roster{
      .round = number(object, "round", -1), .nodes = {}, .past = {}, .successor = word(object, "successor")};
  for (const json& node : object["nodes"]) {
    auto comer = from_json(node);
    if (!comer) return {};
    roster.nodes.push_back(*std::move(comer));
  }
  for (const json& fault : object.value("past", json::array())) {
    if (auto known = fault.is_string() ? parse_end(fault.get<std::string>()) : std::nullopt)
      roster.past.push_back(*std::move(known));
  }
  return roster.round >= 0 && !roster.nodes.empty() ? std::optional(std::move(roster)) : std::nullopt;
}

std::string encode(const Assignment& seat) {
  if (!seat.refused) return to_text({{"round", seat.round}, {"node", seat.node}});
  const Error& error = *seat.refused;
  return to_text({{"code", int(error.code)},
                  {"detail", error.detail},
                  {"hint", error.hint},
                  {"waited", error.waited},
                  {"limit", error.limit}});
}

std::optional<Assignment> parse_seat(const std::string& text) {
  const json object = parse(text);
  if (!object.is_object()) return {};
  if (!object.contains("detail")) {
    const Assignment seat{.round = number(object, "round", -1), .node = number(object, "node", -1), .refused = {}};
    return seat.round >= 0 && seat.node >= 0 ? std::optional(seat) : std::nullopt;
  }
  const auto seconds = [&](const char* name) {
    const auto at = object.find(name);
    return at != object.end() && at->is_number() ? at->get<double>() : -1.0;
  };
  const int code = number(object, "code", int(Code::kMismatch));
  return Assignment{.refused = Error{.code = code >= 0 && code <= int(Code::kInternal) ? Code(code) : Code::kMismatch,
                                     .detail = word(object, "detail"),
                                     .hint = word(object, "hint"),
                                     .waited = seconds("waited"),
                                     .limit = seconds("limit")}};
}

std::string encode(const CoordinatorAddress& coordinator) {
  return to_text({{"term", coordinator.term},
                  {"id", coordinator.id},
                  {"host", coordinator.host},
                  {"address", coordinator.address},
                  {"proof", coordinator.proof}});
}

std::optional<CoordinatorAddress> parse_coordinator(const std::string& text) {
  const json object = parse(text);
  if (!object.is_object()) return {};
  CoordinatorAddress coordinator{.term = number(object, "term", -1),
                                 .id = word(object, "id"),
                                 .host = word(object, "host"),
                                 .address = word(object, "address"),
                                 .proof = word(object, "proof")};
  return coordinator.term >= 0 && !coordinator.id.empty() ? std::optional(std::move(coordinator)) : std::nullopt;
}

std::string encode(const StorePair& pair) {
  return to_text({{"round", pair.round}, {"servers", pair.servers}, {"successor", pair.successor}, {"box", pair.box}});
}

std::optional<StorePair> parse_store_pair(const std::string& text) {
  const json object = parse(text);
  if (!object.is_object()) return {};
  StorePair pair{.round = number(object, "round", -1),
                 .servers = word(object, "servers"),
                 .successor = word(object, "successor"),
                 .box = word(object, "box")};
  return pair.round >= 0 && !pair.servers.empty() ? std::optional(std::move(pair)) : std::nullopt;
}

std::string encode(const RoundEnd& news) {
  json object = {{"again", news.again}};
  switch (news.kind) {
    case RoundEnd::Kind::kEnded:
      object["kind"] = "ended";
      break;
    case RoundEnd::Kind::kMembership:
      object["kind"] = "membership";
      object["text"] = news.text;
      object["gentle"] = news.gentle;
      break;
    case RoundEnd::Kind::kFault:
      object["kind"] = "fault";
      object["fault"] = encode_end(news.fault);
      object["pause"] = to_seconds(news.verdict.pause);
      object["code"] = news.verdict.code;
      object["reason"] = news.verdict.reason;
      break;
  }
  return to_text(object);
}

RoundEnd parse_news(const std::string& value) {
  const json object = parse(value);
  const std::string kind = object.is_object() ? word(object, "kind") : std::string();
  const auto is = [&](const char* what) { return object.contains(what) && object[what] == true; };
  if (kind == "ended") return {};
  if (kind == "membership")
    return {.kind = RoundEnd::Kind::kMembership,
            .again = is("again"),
            .text = word(object, "text"),
            .gentle = is("gentle")};
  RoundEnd news{.kind = RoundEnd::Kind::kFault, .fault = {.text = value}};
  if (kind != "fault") return news;
  news.again = is("again");
  news.fault = parse_end(word(object, "fault")).value_or(Fault{.text = "another failure"});
  const auto pause = object.find("pause");
  news.verdict = {.restart = news.again,
                  .pause = from_seconds(pause != object.end() && pause->is_number() ? pause->get<double>() : 0),
                  .code = std::max(0, number(object, "code", 0)),
                  .reason = word(object, "reason")};
  return news;
}

}  // namespace tutti
