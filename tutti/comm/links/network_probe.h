#pragma once
// Measures the network between two hosts when a job starts, so that the algorithms between hosts can be chosen for it
// (select.h). Takes a few milliseconds: round trips of 64 bytes first, then one MiB at a time.
#include "tutti/base/deadline.h"
#include "tutti/comm/plans/network.h"
#include "tutti/transport/link.h"

namespace tutti::comm {

// One of two ranks calls ask_network(). The other calls answer_network(), which returns when the first rank is done.
// They use their ends of the same link, on which nothing else is transferred meanwhile. The figures are rounded to
// powers of two, so that each run makes the same choices.
Result<LinkCost> ask_network(transport::Link& link, Deadline deadline);
// Ends the peer's answer_network() without measuring, if the figures are already known.
Status end_asking(transport::Link& link, Deadline deadline);
Status answer_network(transport::Link& link, Deadline deadline);

// Serializes the figures for other ranks, without loss.
std::string to_words(const LinkCost& cost);
Result<LinkCost> from_words(const std::string& words);

// network_text() formats for people: "4 us, 8 GiB/s". parse_network() parses the syntax of TUTTI_NETWORK: "4us,8.59".
std::string network_text(const LinkCost& cost);
Result<LinkCost> parse_network(const std::string& text);

}  // namespace tutti::comm
