#pragma once
// JSON between ranks: comm/objects.h with a value that the sender writes as text and the receiver parses. NaN and
// infinity arrive as null, for JSON has neither. Text that cannot be parsed, or nests more than 512 deep, is kCorrupt
// and names the sender. A string that is not UTF-8 is an error of the sender.
//
// Include this only with the headers of nlohmann-json installed; the library does not bring them.
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "tutti/comm/objects.h"

namespace tutti {

void broadcast_json(const Group& group, nlohmann::json& value, int root = 0, ObjectLimit limit = {},
                    CallSite at = CallSite::here());
std::vector<nlohmann::json> all_gather_json(const Group& group, const nlohmann::json& mine, ObjectLimit limit = {},
                                            CallSite at = CallSite::here());
std::vector<nlohmann::json> gather_json(const Group& group, const nlohmann::json& mine, int root,
                                        ObjectLimit limit = {}, CallSite at = CallSite::here());
nlohmann::json scatter_json(const Group& group, const std::vector<nlohmann::json>& values, int root,
                            ObjectLimit limit = {}, CallSite at = CallSite::here());
void send_json(const Group& group, const nlohmann::json& value, int peer, int tag = 0, ObjectLimit limit = {},
               CallSite at = CallSite::here());
nlohmann::json recv_json(const Group& group, int peer, int tag = 0, std::int32_t* source = nullptr,
                         ObjectLimit limit = {}, CallSite at = CallSite::here());

}  // namespace tutti
