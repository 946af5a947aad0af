// A client of the store that sends anything: the bytes go through a socket, the frame reader, the parsers and the
// table. What parses as a request survives being written and parsed again.
#include <sys/socket.h>

#include <vector>

#include "tests/fuzz/targets.h"
#include "tutti/store/shared_table.h"
#include "tutti/store/table.h"
#include "tutti/store/wire.h"

namespace tutti::fuzz {

void store_frame(Input input) {
  int pair[2];
  promise(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0, "a socket can be made");
  Fd client(pair[0]), server(pair[1]);
  if (::send(client.get(), input.data(), input.size(), MSG_NOSIGNAL) < 0 && !input.empty())
    return;  // more than a socket holds
  client.reset();

  store::wire::FrameReader reader;
  store::Table table;
  store::SharedTable standby;  // what a primary sends is no more trusted
  store::Table::Ticket ticket = 0;
  std::vector<store::Table::Answer> answers;
  for (auto got = reader.read(server.get()); got.ok() && *got; got = reader.read(server.get())) {
    while (true) {
      const auto frame = reader.next();
      if (!frame.ok()) return promise_sentence(frame.error());
      if (!*frame) break;
      (void)store::wire::parse_reply(**frame).ok();
      (void)store::wire::parse_missing(**frame).ok();
      (void)store::wire::parse_client(**frame).ok();
      (void)store::wire::parse_heartbeat(**frame).ok();
      if (const Status followed = standby.apply_entry(**frame); !followed.ok()) promise_sentence(followed.error());
      const auto request = store::wire::parse_request(**frame);
      if (!request.ok()) {
        promise_sentence(request.error());
        continue;
      }
      const std::string body = store::wire::body_of(*request);
      const auto again = store::wire::parse_request({.kind = (*frame)->kind, .body = std::as_bytes(std::span(body))});
      promise(again.ok() && *again == *request, "a request survives being written");
      table.submit(++ticket, *request, answers);
      (void)table.missing(ticket);
      if (ticket % 3 == 0) (void)table.withdraw(ticket);
    }
  }
  for (const auto& answer : answers) (void)store::wire::body_of(answer.reply);
  for (store::Table::Ticket t = 1; t <= ticket; ++t) (void)table.withdraw(t);
  promise(table.waiting() == 0, "who was withdrawn waits no more");
}

}  // namespace tutti::fuzz
