#pragma once
// Measures the network between two hosts when a job starts, so that the algorithms between hosts can be chosen for it
// (select.h). A few milliseconds: messages of 64 bytes back and forth, then a megabyte at a time.
#include "tutti/base/deadline.h"
#include "tutti/comm/plans/network.h"
#include "tutti/transport/link.h"

namespace tutti {

// One of two ranks asks, the other one answers until the first has done, both over their ends of the same link, on
// which nothing else travels meanwhile. The figures are rounded to powers of two, so that one run chooses as the next.
Result<LinkCost> ask_network(Link& link, Deadline deadline);
// Asks nothing: the figures are known.
Status end_asking(Link& link, Deadline deadline);
Status answer_network(Link& link, Deadline deadline);

// As a rank tells the others; to the last bit.
std::string to_words(const LinkCost& cost);
Result<LinkCost> from_words(const std::string& words);

// "4 us, 8 GiB/s" for people; parse_network() reads "4us,8.59" as TUTTI_NETWORK has it.
std::string network_text(const LinkCost& cost);
Result<LinkCost> parse_network(const std::string& text);

}  // namespace tutti
