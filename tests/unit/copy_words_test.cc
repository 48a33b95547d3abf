#include "launcher/hosts/remote_command.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace drun::hosts {
namespace {

struct Heard {
  std::vector<CopyWord> words{};
  std::string text{};
};

Heard hear(const std::vector<std::string>& pieces) {
  Heard heard;
  CopyWords words;
  const CopyWords::Listener listener{
      .on_word = [&heard](const CopyWord& word) { heard.words.push_back(word); },
      .on_text = [&heard](std::string_view text) { heard.text += text; }};
  for (const std::string& piece : pieces) words.take(piece, listener);
  words.end_of_stream(listener);
  return heard;
}

}  // namespace

TEST_CASE("copy words are found in login output at any split") {
  const std::string all =
      "Welcome to node01\nno newline@drun want x86_64\n@drun want aarch64 drun 0.9.0 (GNU 12)\n"
      "text\n@drun send\n@drun start\n\x1e"
      "drun frames @drun";
  const std::vector<CopyWord> words{
      CopyWanted{.machine = "x86_64"},
      CopyWanted{.machine = "aarch64", .installed = "drun 0.9.0 (GNU 12)"}, CopyRequested{},
      CopyStarts{}};
  const std::string text =
      "Welcome to node01\nno newlinetext\n\x1e"
      "drun frames @drun";
  for (std::size_t cut = 0; cut <= all.size(); ++cut) {
    INFO(cut);
    const Heard heard = hear({all.substr(0, cut), all.substr(cut)});
    CHECK(heard.words == words);
    CHECK(heard.text == text);
  }
  std::vector<std::string> bytes;
  for (const char byte : all) bytes.emplace_back(1, byte);
  CHECK(hear(bytes).words == words);
  CHECK(hear(bytes).text == text);
}

TEST_CASE("text that only resembles a copy word is treated as login output") {
  for (const std::string& text : std::vector<std::string>{
           "@drun", "@drun ", "@drun want", "@drun nothing\n", "@drun \n", "@@@drun x\n",
           "@drun " + std::string(5000, 'x') + "\n", "me@drun.example\n"}) {
    INFO(text.substr(0, 20));
    CHECK(hear({text}).words.empty());
    CHECK(hear({text}).text == text);
  }
  CHECK(copy_line(12, "ab") == "\n@drun copy 12 ab\n");
  CHECK(refuse_line("no") == "\n@drun refuse no\n");
}

}  // namespace drun::hosts
