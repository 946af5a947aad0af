#pragma once
// The agent's two consoles, and what it says there itself.
#include <string>

#include "tutti/launch/agent/poll_set.h"
#include "tutti/launch/output/console.h"
#include "tutti/launch/output/output.h"

namespace tutti {

class Consoles {
 public:
  // Without a log_dir what a console loses is lost.
  explicit Consoles(std::string log_dir) : log_dir_(std::move(log_dir)) {}
  Consoles(const OutputOptions& options, std::string host)
      : log_dir_(options.log_dir), json_(options.json), host_(std::move(host)) {}

  Console& output() { return output_; }
  Console& errors() { return errors_; }
  void say(const std::string& text);
  // Lines as they are, each with its "[tutti] " already.
  void say_block(const std::string& text);

  void listen(PollSet& events);
  void pump();
  // Tells, once for each, of a console that takes nothing any more. True if the job must end because of it: the reader
  // went away and no log files keep what the job says. `running`: the job is not ending anyway.
  bool lost_reader(bool running);
  bool reader_gone() const { return reader_gone_; }
  bool output_lost() const { return output_lost_; }

 private:
  std::string log_dir_;
  bool json_ = false;
  std::string host_;
  Console output_{1}, errors_{2};
  bool reader_gone_ = false, output_lost_ = false;
};

}  // namespace tutti
