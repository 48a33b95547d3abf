#include "launcher/hosts/hand_over.h"

#include <utility>

#include "launcher/hosts/json_fields.h"

namespace drun::hosts {
std::string to_line(const Start& start) {
  Json environment = Json::array();
  for (const auto& [name, value] : start.environment)
    environment.push_back(json_texts({name, value}));
  Json json = {{"protocol", start.protocol},
               {"nonce", to_characters(start.nonce)},
               {"arguments", json_texts(start.arguments)},
               {"environment", std::move(environment)},
               {"directory", to_characters(start.directory)},
               {"host", to_characters(start.host)},
               {"label", to_characters(start.label)},
               {"report_file", to_characters(start.report_file)},
               {"sends_lines", start.sends_lines},
               {"keeps_all", start.keeps_all},
               {"log_directory", to_characters(start.log_directory)},
               {"columns", start.columns},
               {"has_colour", start.has_colour},
               {"utc_offset_s", start.utc_offset_s}};
  if (!start.secret.empty()) json["secret"] = to_characters(start.secret);
  return json.dump() + "\n";
}

std::string to_text(const Hello& hello) {
  const Json json = {{"protocol", hello.protocol},
                     {"version", to_characters(hello.version)},
                     {"problem", to_characters(hello.problem)},
                     {"exit_code", hello.exit_code}};
  return json.dump();
}

std::string to_text(const End& end) {
  const Json json = {{"exit_code", end.exit_code},
                     {"text", to_characters(end.text)},
                     {"report", to_characters(end.report)}};
  return json.dump();
}

Result<Start> parse_start(std::string_view line) {
  JsonFields fields(line, kMostLineBytes);
  Start start;
  start.protocol = fields.number("protocol");
  start.nonce = fields.text("nonce");
  start.arguments = fields.words("arguments");
  start.environment = fields.entries("environment");
  start.directory = fields.text("directory");
  start.host = fields.text("host");
  start.label = fields.text("label");
  start.report_file = fields.text("report_file");
  start.sends_lines = fields.flag("sends_lines");
  start.keeps_all = fields.flag("keeps_all");
  start.log_directory = fields.text("log_directory");
  start.columns = fields.number("columns");
  start.has_colour = fields.flag("has_colour");
  start.utc_offset_s = fields.number("utc_offset_s");
  start.secret = fields.text("secret", false);
  return fields.take(std::move(start), "the starter's first line");
}

Result<Hello> parse_hello(std::string_view line) {
  JsonFields fields(line, kMostLineBytes);
  Hello hello;
  hello.protocol = fields.number("protocol");
  hello.version = fields.text("version");
  hello.problem = fields.text("problem");
  hello.exit_code = fields.number("exit_code");
  return fields.take(std::move(hello), "the agent's first message");
}

Result<End> parse_end(std::string_view line) {
  JsonFields fields(line, kMostLineBytes);
  End end;
  end.exit_code = fields.number("exit_code");
  end.text = fields.text("text");
  end.report = fields.text("report");
  return fields.take(std::move(end), "the agent's last message");
}

}  // namespace drun::hosts
