#pragma once
// Whether all ranks are well, and whether all were given the same: for steps that each rank does by itself (opening a
// file, checking its options) and that count only if all succeed.
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/call_site.h"
#include "tutti/comm/group.h"

namespace tutti {

// Ok if every rank gives ok. Else the same error on every rank: that of the lowest rank that has one, which it names.
// Collective; an error of the group itself is returned as well. Without a group: `mine`.
Status agree(const Group& group, const Status& mine, CallSite at = CallSite::here());

using NamedValue = std::pair<std::string, std::string>;

// Ok if every rank gives the same values. Else the same kMismatch on every rank, which names the first value that is
// not rank 0's:
//
//   agree_on(world, "the ranks were started differently", {{"--lr", "0.1"}, {"--batch", "64"}}, "give all ranks
//   --lr").or_throw();
//   // Mismatch: the ranks were started differently: --lr is 0.1 on rank 0, but 0.2 on ranks 1, 3 (hint: ...)
//
// A value that a rank does not have is "nothing". Collective: an all_reduce of two numbers if all agree. An error of
// the group itself is returned as well. Without a group: ok.
Status agree_on(const Group& group, const std::string& what, const std::vector<NamedValue>& values,
                const std::string& hint = {}, CallSite at = CallSite::here());

// An error as text (JSON), for another rank.
std::string encode_error(const Error& error);
// The error that rank `rank` has encoded; the sentence names the rank. kInternal if the text cannot be parsed.
Error parse_remote_error(const std::string& text, int rank);

}  // namespace tutti
