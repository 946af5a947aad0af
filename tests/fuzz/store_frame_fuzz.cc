// A client of the store that sends anything: the bytes go through a socket, the frame reader, the parsers and the
// table. What parses as a request must survive being written and parsed again.
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "tutti/base/fd.h"
#include "tutti/store/table.h"
#include "tutti/store/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti;
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) std::abort();
  Fd client(pair[0]), server(pair[1]);
  if (::send(client.get(), data, size, MSG_NOSIGNAL) < 0 && size > 0) return 0;  // more than a socket holds
  client.reset();

  wire::FrameReader reader;
  Table table;
  Table::Ticket ticket = 0;
  std::vector<Table::Answer> answers;
  for (auto got = reader.read(server.get()); got.ok() && *got; got = reader.read(server.get())) {
    while (true) {
      const auto frame = reader.next();
      if (!frame.ok()) return 0;
      if (!*frame) break;
      (void)wire::parse_reply(**frame).ok();
      (void)wire::parse_missing(**frame).ok();
      const auto request = wire::parse_request(**frame);
      if (!request.ok()) continue;
      const std::string body = wire::body_of(*request);
      const auto again = wire::parse_request({.kind = (*frame)->kind, .body = std::as_bytes(std::span(body))});
      if (!again.ok() || !(*again == *request)) std::abort();
      table.submit(++ticket, *request, answers);
      (void)table.missing(ticket);
      if (ticket % 3 == 0) (void)table.withdraw(ticket);
    }
  }
  for (const auto& answer : answers) (void)wire::body_of(answer.reply);
  for (Table::Ticket t = 1; t <= ticket; ++t) (void)table.withdraw(t);
  if (table.waiting() != 0) std::abort();
  return 0;
}
