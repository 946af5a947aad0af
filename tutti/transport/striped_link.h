#pragma once
// One Link over several connections between the same two ranks, for networks that give a single flow less than the card
// could carry.
#include <memory>
#include <vector>

#include "tutti/transport/link.h"

namespace tutti::transport {

// `streams`: links to the same peer, the same number and order on both sides, at least one. Bytes that try_send() did
// not take must be offered again, before any others: part of them may be on its way. Errors are those of the streams;
// the link is lost when one of them is.
std::unique_ptr<Link> make_striped_link(std::vector<std::unique_ptr<Link>> streams);

}  // namespace tutti::transport
