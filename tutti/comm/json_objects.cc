// A rank that cannot write its value throws without a message to its peers. They then wait for it as for any missing
// rank. A rank that cannot read a received value has completed its part of the call.
#include "tutti/comm/json_objects.h"

#include <nlohmann/json.hpp>

namespace tutti {
namespace {

using nlohmann::json;

constexpr int kDeepest = 512;

std::string write(const Group& group, const char* verb, const json& value) {
  try {
    return value.dump();
  } catch (const json::exception&) {
    throw Exception(Error{.code = Code::kInvalidArgument,
                          .detail = "the JSON to send has a string that is not UTF-8",
                          .hint = "send bytes as they are, with the verbs of comm/objects.h",
                          .group = group.name(),
                          .rank = group.rank(),
                          .operation = verb});
  }
}

json read(const Group& group, const char* verb, const std::string& text, int from) {
  Error error{.code = Code::kCorrupt, .group = group.name(), .rank = group.rank(), .operation = verb, .peer = from};
  try {
    return json::parse(text, [](int depth, json::parse_event_t, json&) {
      if (depth > kDeepest) throw Exception(invalid_argument(detail::words("nests more than ", kDeepest, " deep")));
      return true;
    });
  } catch (const Exception& too_deep) {
    error.detail = "sent JSON that " + too_deep.error().detail;
  } catch (const json::parse_error& broken) {
    error.detail = detail::words("sent text that is not JSON: parsing failed at byte ", std::to_string(broken.byte),
                                 " of ", std::to_string(text.size()));
    error.hint = "do all ranks call the json verb?";
  } catch (const json::out_of_range&) {
    error.detail = "sent JSON with a number that is too large for a double";
  }
  throw Exception(std::move(error));
}

std::vector<json> read_all(const Group& group, const char* verb, const std::vector<std::string>& texts) {
  std::vector<json> values;
  for (std::size_t r = 0; r < texts.size(); ++r) values.push_back(read(group, verb, texts[r], int(r)));
  return values;
}

}  // namespace

void broadcast_json(const Group& group, json& value, int root, ObjectLimit limit, CallSite at) {
  std::string text = group.rank() == root ? write(group, "broadcast_json", value) : std::string();
  broadcast_bytes(group, text, root, limit, at);
  if (group.rank() != root) value = read(group, "broadcast_json", text, root);
}

std::vector<json> all_gather_json(const Group& group, const json& mine, ObjectLimit limit, CallSite at) {
  const std::string text = write(group, "all_gather_json", mine);
  return read_all(group, "all_gather_json", all_gather_bytes(group, text, limit, at));
}

std::vector<json> gather_json(const Group& group, const json& mine, int root, ObjectLimit limit, CallSite at) {
  const std::string text = write(group, "gather_json", mine);
  return read_all(group, "gather_json", gather_bytes(group, text, root, limit, at));
}

json scatter_json(const Group& group, const std::vector<json>& values, int root, ObjectLimit limit, CallSite at) {
  std::vector<std::string> texts;
  if (group.rank() == root)
    for (const json& value : values) texts.push_back(write(group, "scatter_json", value));
  return read(group, "scatter_json", scatter_bytes(group, texts, root, limit, at), root);
}

void send_json(const Group& group, const json& value, int peer, int tag, ObjectLimit limit, CallSite at) {
  send_bytes(group, write(group, "send_json", value), peer, tag, limit, at);
}

json recv_json(const Group& group, int peer, int tag, std::int32_t* source, ObjectLimit limit, CallSite at) {
  std::int32_t from = peer;
  const std::string text = recv_bytes(group, peer, tag, &from, limit, at);
  if (source) *source = from;
  return read(group, "recv_json", text, from);
}

}  // namespace tutti
