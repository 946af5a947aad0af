// Values are JSON, because they are few, people read them in the store, and they grow with versions: a field that is
// missing has its default, one that is not known is ignored. Heartbeats are many, and are binary.
#include "tutti/launch/membership/protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tutti/base/text.h"

namespace tutti::launch::membership {
namespace {

using nlohmann::json;

constexpr int kMostExitCode = 255;
constexpr std::string_view kJoin = "join ", kLeave = "leave ";
constexpr char kMagic[8] = {'t', 'u', 't', 't', 'i', 'P', '2', '\0'};
constexpr std::size_t kProofBytes = 16;

struct DatagramWire {
  char magic[8];
  std::uint8_t kind, out;
  std::uint16_t zero;
  std::int32_t round;
  std::uint64_t id, own, other;
  std::int32_t vote;
  std::uint32_t zero2;
  std::byte proof[kProofBytes];
};
static_assert(sizeof(DatagramWire) == kDatagramBytes);

std::string to_text(const json& value) {  // a host name need not be UTF-8
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json parse(const std::string& text) { return json::parse(text, nullptr, /*allow_exceptions=*/false); }

// A number from `least` to `most`; none: something else is there, or nothing.
std::optional<std::int64_t> number_in(const json& object, const char* name, std::int64_t least, std::int64_t most) {
  const auto at = object.find(name);
  if (at == object.end() || !at->is_number_integer()) return {};
  if (at->is_number_unsigned() && at->get<std::uint64_t>() > std::uint64_t(most)) return {};
  const auto value = at->get<std::int64_t>();
  return value >= least && value <= most ? std::optional(value) : std::nullopt;
}

int number(const json& object, const char* name, int otherwise) {
  return int(number_in(object, name, -1, INT32_MAX).value_or(otherwise));
}

std::optional<std::string> string_of(const json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? std::optional(at->get<std::string>()) : std::nullopt;
}

std::string word(const json& object, const char* name) { return string_of(object, name).value_or(""); }

bool flag(const json& object, const char* name) { return object.contains(name) && object[name] == true; }

double seconds_of(const json& object, const char* name, double otherwise) {
  const auto at = object.find(name);
  return at != object.end() && at->is_number() ? at->get<double>() : otherwise;
}

json to_json(const NodeNote& note) {
  return {{"ranks", note.ranks}, {"listed", note.listed}, {"host", note.host},      {"address", note.address},
          {"about", note.about}, {"pid", note.pid},       {"release", note.release}};
}

std::optional<NodeNote> note_from_json(const json& object) {
  if (!object.is_object()) return {};
  const auto ranks = number_in(object, "ranks", 1, kMostRanksPerNode);
  auto host = string_of(object, "host"), address = string_of(object, "address"), about = string_of(object, "about");
  const auto listed = object.find("listed");
  if (!ranks || !host || !address || !about || listed == object.end() || !listed->is_array()) return {};
  NodeNote note{.ranks = int(*ranks),
                .listed = {},
                .host = *std::move(host),
                .address = *std::move(address),
                .about = *std::move(about),
                .pid = int(number_in(object, "pid", 1, INT32_MAX).value_or(0)),
                .release = word(object, "release")};
  for (const auto& item : *listed) {
    const auto count = number_in({{"count", item}}, "count", 1, kMostRanksPerNode);
    if (!count) return {};
    note.listed.push_back(int(*count));
  }
  return note;
}

json to_json(const JoinRequest& request) {
  return {{"id", request.id},     {"visit", request.visit},     {"wanted", request.wanted},
          {"min", request.min},   {"max", request.max},         {"failover", request.failover},
          {"port", request.port}, {"last", request.last_round}, {"note", to_json(request.note)}};
}

std::optional<JoinRequest> request_from_json(const json& object) {
  if (!object.is_object() || !object.contains("note")) return {};
  auto note = note_from_json(object["note"]);
  JoinRequest request{.id = word(object, "id"),
                      .visit = number(object, "visit", 0),
                      .wanted = number(object, "wanted", -1),
                      .min = number(object, "min", 1),
                      .max = number(object, "max", 1),
                      .failover = object.value("failover", json()) == true,
                      .port = number(object, "port", 0),
                      .last_round = number(object, "last", -1)};
  if (!note || request.id.empty()) return {};
  request.note = *std::move(note);
  return request;
}

// "c at 10.0.0.3"
std::string place_of(const NodeNote& note) { return note.host + (note.address.empty() ? "" : " at " + note.address); }

std::string list_text(const std::vector<int>& counts) {
  std::vector<std::string> words;
  for (const int count : counts) words.push_back(std::to_string(count));
  return join(words, ",");
}

}  // namespace

std::uint64_t number_of(const std::string& id) { return std::strtoull(id.c_str(), nullptr, 16); }

std::string id_of(std::uint64_t number) { return fmt::format("{:016x}", number); }

// ---- a node ----

std::string encode(const NodeNote& note) { return to_text(to_json(note)); }
std::optional<NodeNote> parse_node_note(const std::string& text) { return note_from_json(parse(text)); }

Status check_rank_counts(const std::vector<NodeNote>& notes) {
  const auto was_given = [&](const NodeNote& note) {
    return "node " + std::to_string(&note - notes.data()) + " was given -n " + list_text(note.listed);
  };
  const auto mismatch = [](std::string detail) {
    return Error{.code = Code::kMismatch, .detail = std::move(detail), .hint = "give the same -n list to all nodes"};
  };
  const NodeNote* lister = nullptr;
  for (const NodeNote& note : notes) {
    if (note.listed.empty()) continue;
    if (!lister) lister = &note;
    if (note.listed != lister->listed)
      return mismatch(was_given(*lister) + ", but node " + std::to_string(&note - notes.data()) + " -n " +
                      list_text(note.listed));
  }
  if (!lister) return {};
  if (lister->listed.size() != notes.size())
    return mismatch(was_given(*lister) + ", but " + std::to_string(notes.size()) + " nodes take part");
  for (std::size_t node = 0; node < notes.size(); ++node) {
    if (lister->listed[node] != notes[node].ranks)
      return mismatch(was_given(*lister) + ", but node " + std::to_string(node) + " runs " +
                      std::to_string(notes[node].ranks) + " ranks");
  }
  return {};
}

std::string encode(const JoinRequest& request) { return to_text(to_json(request)); }
std::optional<JoinRequest> parse_join_request(const std::string& text) { return request_from_json(parse(text)); }

std::string describe(const JoinRequest& request) {
  return request.wanted >= 0 ? describe(request, request.wanted) : place_of(request.note);
}

std::string describe(const JoinRequest& request, int node) {
  return "node " + std::to_string(node) + " (" + place_of(request.note) + ")";
}

std::string describe_with_pid(const JoinRequest& request) {
  const std::string place =
      place_of(request.note) + (request.note.pid == 0 ? "" : ", pid " + std::to_string(request.note.pid));
  return request.wanted < 0 ? place : "node " + std::to_string(request.wanted) + " (" + place + ")";
}

std::string join_note(const JoinRequest& request) { return std::string(kJoin) + encode(request); }
std::string leave_note(const std::string& id) { return std::string(kLeave) + id; }

std::optional<InboxNote> parse_note(const std::string& text) {
  if (text.starts_with(kLeave)) return InboxNote{.join = {}, .leave = text.substr(kLeave.size())};
  auto request = text.starts_with(kJoin) ? parse_join_request(text.substr(kJoin.size())) : std::nullopt;
  if (!request) return {};
  return InboxNote{.join = std::move(request), .leave = {}};
}

// ---- a round ----

std::string encode(const Participants& participants) {
  json nodes = json::array(), past = json::array();
  for (const JoinRequest& request : participants.nodes) nodes.push_back(to_json(request));
  for (const Fault& fault : participants.past) past.push_back(encode_fault(fault));
  return to_text({{"round", participants.round},
                  {"nodes", std::move(nodes)},
                  {"past", std::move(past)},
                  {"successor", participants.standby}});
}

std::optional<Participants> parse_participants(const std::string& text) {
  const json object = parse(text);
  if (!object.is_object() || !object.contains("nodes") || !object["nodes"].is_array()) return {};
  Participants participants{
      .round = number(object, "round", -1), .nodes = {}, .past = {}, .standby = word(object, "successor")};
  for (const json& node : object["nodes"]) {
    auto request = request_from_json(node);
    if (!request) return {};
    participants.nodes.push_back(*std::move(request));
  }
  for (const json& fault : object.value("past", json::array())) {
    if (auto known = fault.is_string() ? parse_fault(fault.get<std::string>()) : std::nullopt)
      participants.past.push_back(*std::move(known));
  }
  const bool valid = participants.round >= 0 && !participants.nodes.empty();
  return valid ? std::optional(std::move(participants)) : std::nullopt;
}

std::string encode(const Assignment& assignment) {
  if (!assignment.refused) return to_text({{"round", assignment.round}, {"node", assignment.node}});
  const Error& error = *assignment.refused;
  return to_text({{"code", int(error.code)},
                  {"detail", error.detail},
                  {"hint", error.hint},
                  {"waited", error.waited},
                  {"limit", error.limit}});
}

std::optional<Assignment> parse_assignment(const std::string& text) {
  const json object = parse(text);
  if (!object.is_object()) return {};
  if (!object.contains("detail")) {
    const Assignment assignment{
        .round = number(object, "round", -1), .node = number(object, "node", -1), .refused = {}};
    return assignment.round >= 0 && assignment.node >= 0 ? std::optional(assignment) : std::nullopt;
  }
  const int code = number(object, "code", int(Code::kMismatch));
  return Assignment{.refused = Error{.code = code >= 0 && code <= int(Code::kInternal) ? Code(code) : Code::kMismatch,
                                     .detail = word(object, "detail"),
                                     .hint = word(object, "hint"),
                                     .waited = seconds_of(object, "waited", -1),
                                     .limit = seconds_of(object, "limit", -1)}};
}

std::string encode_fault(const std::optional<Fault>& fault) {
  if (!fault) return "{}";
  return to_text({{"text", fault->text},
                  {"code", fault->code},
                  {"report", fault->report},
                  {"rank", fault->rank},
                  {"step", fault->step},
                  {"seconds", fault->seconds},
                  {"final", fault->final}});
}

std::optional<Fault> parse_fault(const std::string& value) {
  const json object = parse(value);
  if (!object.is_object()) return Fault{.text = value};
  if (object.empty()) return {};
  return Fault{.text = string_of(object, "text").value_or(value),
               .code = int(number_in(object, "code", 1, kMostExitCode).value_or(1)),
               .report = flag(object, "report"),
               .rank = int(number_in(object, "rank", 0, INT32_MAX).value_or(-1)),
               .step = number_in(object, "step", 0, INT64_MAX).value_or(-1),
               .seconds = seconds_of(object, "seconds", 0),
               .final = flag(object, "final")};
}

std::string encode(const RoundEnd& end) {
  json object = {{"again", end.again}};
  switch (end.kind) {
    case RoundEnd::Kind::kEnded:
      object["kind"] = "ended";
      break;
    case RoundEnd::Kind::kMembership:
      object["kind"] = "membership";
      object["text"] = end.text;
      object["gentle"] = end.gentle;
      break;
    case RoundEnd::Kind::kFault:
      object["kind"] = "fault";
      object["fault"] = encode_fault(end.fault);
      object["pause"] = to_seconds(end.verdict.pause);
      object["code"] = end.verdict.code;
      object["reason"] = end.verdict.reason;
      break;
  }
  return to_text(object);
}

RoundEnd parse_round_end(const std::string& value) {
  const json object = parse(value);
  const std::string kind = object.is_object() ? word(object, "kind") : std::string();
  if (kind == "ended") return {};
  if (kind == "membership")
    return {.kind = RoundEnd::Kind::kMembership,
            .again = flag(object, "again"),
            .text = word(object, "text"),
            .gentle = flag(object, "gentle")};
  RoundEnd end{.kind = RoundEnd::Kind::kFault, .fault = {.text = value}};
  if (kind != "fault") return end;
  end.again = flag(object, "again");
  end.fault = parse_fault(word(object, "fault")).value_or(Fault{.text = "another failure"});
  end.verdict = {.restart = end.again,
                 .pause = from_seconds(seconds_of(object, "pause", 0)),
                 .code = std::max(0, number(object, "code", 0)),
                 .reason = word(object, "reason")};
  return end;
}

// ---- the coordinator and the store ----

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

std::string proof_of(const transport::Credentials& credentials, const CoordinatorAddress& coordinator) {
  CoordinatorAddress bare = coordinator;
  bare.proof.clear();
  const std::string text = encode(bare);
  const crypto::Digest key =
      crypto::hkdf_sha256(credentials.secret.bytes(), crypto::sha256(credentials.job), "tutti coordinator");
  std::string hex;
  for (const std::byte byte : crypto::hmac_sha256(key, std::as_bytes(std::span(text))))
    hex += fmt::format("{:02x}", int(byte));
  return hex;
}

std::string encode(const StorePair& pair) {
  return to_text({{"round", pair.round}, {"servers", pair.servers}, {"successor", pair.standby}, {"box", pair.votes}});
}

std::optional<StorePair> parse_store_pair(const std::string& text) {
  const json object = parse(text);
  if (!object.is_object()) return {};
  StorePair pair{.round = number(object, "round", -1),
                 .servers = word(object, "servers"),
                 .standby = word(object, "successor"),
                 .votes = word(object, "box")};
  return pair.round >= 0 && !pair.servers.empty() ? std::optional(std::move(pair)) : std::nullopt;
}

// ---- heartbeats ----

crypto::Digest heartbeat_key(const transport::Credentials& credentials) {
  return crypto::hkdf_sha256(credentials.secret.bytes(), crypto::sha256(credentials.job), "tutti heartbeats");
}

std::array<std::byte, kDatagramBytes> encode(const Datagram& datagram, const crypto::Digest& key) {
  DatagramWire wire{.kind = std::uint8_t(datagram.kind),
                    .out = datagram.out,
                    .zero = 0,
                    .round = datagram.round,
                    .id = datagram.id,
                    .own = datagram.own,
                    .other = datagram.other,
                    .vote = datagram.vote,
                    .zero2 = 0};
  std::memcpy(wire.magic, kMagic, sizeof kMagic);
  const auto bytes = std::as_bytes(std::span(&wire, 1));
  const crypto::Digest proof = crypto::hmac_sha256(key, bytes.first(kDatagramBytes - kProofBytes));
  std::memcpy(wire.proof, proof.data(), kProofBytes);
  std::array<std::byte, kDatagramBytes> out;
  std::memcpy(out.data(), &wire, kDatagramBytes);
  return out;
}

std::optional<Datagram> parse_datagram(std::span<const std::byte> bytes, const crypto::Digest& key) {
  DatagramWire wire;
  if (bytes.size() != kDatagramBytes) return {};
  std::memcpy(&wire, bytes.data(), kDatagramBytes);
  if (std::memcmp(wire.magic, kMagic, sizeof kMagic) != 0 || wire.kind < 1 || wire.kind > 3) return {};
  const crypto::Digest proof = crypto::hmac_sha256(key, bytes.first(kDatagramBytes - kProofBytes));
  if (!crypto::equal(std::span(proof).first(kProofBytes), bytes.last(kProofBytes))) return {};
  return Datagram{.kind = Datagram::Kind(wire.kind),
                  .out = wire.out != 0,
                  .round = wire.round,
                  .id = wire.id,
                  .own = wire.own,
                  .other = wire.other,
                  .vote = wire.vote};
}

}  // namespace tutti::launch::membership
