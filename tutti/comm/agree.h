#pragma once
// Whether all ranks are well: for steps that each rank does by itself (opening a file, checking what it was given) and
// that count only if all succeed.
#include <string>

#include "tutti/base/call_site.h"
#include "tutti/comm/group.h"

namespace tutti {

// Ok if every rank gives ok. Else the same error on every rank: that of the lowest rank that has one, which it names.
// Collective; an error of the group itself is returned as well. Without a group: `mine`.
Status agree(const Group& group, const Status& mine, CallSite at = CallSite::here());

// An error as text (JSON), for another rank.
std::string encode_error(const Error& error);
// The error that rank `rank` has encoded; the sentence names the rank. kInternal if the text cannot be parsed.
Error parse_remote_error(const std::string& text, int rank);

}  // namespace tutti
