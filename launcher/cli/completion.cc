#include "launcher/cli/completion.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "launcher/base/text.h"
#include "launcher/cli/completion_scripts.h"

namespace drun {
namespace {

using WordSpan = std::span<const std::string>;
using Value = OptionSyntax::Value;
using More = Completion::More;

constexpr std::array kSignals{"SIGTERM", "SIGINT",  "SIGHUP",  "SIGQUIT",
                              "SIGUSR1", "SIGUSR2", "SIGABRT", "SIGKILL"};

bool takes_next_word(const OptionSyntax& option) {
  return option.value == Value::Needed || option.value == Value::Pair;
}

// The option that `word` names or abbreviates, if it is only one. Of several letters, the last
// one's.
const OptionSyntax* find_option(const CommandSyntax& command, std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return nullptr;
  if (word[1] == '-') {
    const auto found = options_named(dashed(word.substr(0, word.find('='))), command.options);
    return found.size() == 1 ? found.front() : nullptr;
  }
  for (const OptionSyntax& option : command.options)
    if (option.may_have_one_dash && option.name == dashed("-" + std::string(word))) return &option;
  for (std::size_t at = 1;; ++at) {
    const auto option = std::find_if(
        command.options.begin(), command.options.end(),
        [letter = word[at]](const OptionSyntax& each) { return each.letter == letter; });
    const bool is_last = at + 1 == word.size();
    if (option == command.options.end() || (takes_next_word(*option) && !is_last)) return nullptr;
    if (is_last) return &*option;
  }
}

// The first clause of an option's help text.
std::string short_text(std::string_view text) {
  constexpr std::size_t kColumns = 60;
  const std::string_view line = text.substr(0, text.find_first_of(";\n\t"));
  if (line.size() <= kColumns) return std::string(line);
  return std::string(line.substr(0, line.rfind(' ', kColumns))) + " ...";
}

class Completer {
 public:
  Completer(WordSpan words, std::span<const CommandSyntax> commands)
      : words_(words), commands_(commands), command_(&commands.front()) {
    const std::string name = words.empty() ? "" : words[0].substr(words[0].rfind('/') + 1);
    if (name == "torchrun") commands_ = commands.first(1);  // it has no helper commands
  }

  Completion run() {
    if (words_.size() < 2) return {};
    const std::string& last = words_.back();
    std::size_t at = skip_command(1);
    const bool is_launcher_line = at == 1;
    for (; at + 1 < words_.size(); ++at) {
      const std::string& word = words_[at];
      if (word == "--") return operand(at + 1);
      if (word.size() < 2 || word[0] != '-') {
        if (command_->operand == CommandSyntax::Operand::Files) continue;
        if (!takes_jobs()) return operand(at);
        has_job_ = true;
        continue;
      }
      if (word == "--hostfile" || word == "--machinefile") result_.hostfile = words_[at + 1];
      if (word.starts_with("--hostfile=")) result_.hostfile = word.substr(word.find('=') + 1);
      const OptionSyntax* const option = find_option(*command_, word);
      if (option == nullptr || !takes_next_word(*option) || word.find('=') != word.npos) continue;
      at += option->value == Value::Pair ? 2 : 1;
      if (at + 1 >= words_.size()) return value(*option, "", last);
    }
    if (last.starts_with("--") && last.find('=') != last.npos) {
      const std::size_t end = last.find('=') + 1;
      const OptionSyntax* const option = find_option(*command_, last);
      if (option != nullptr && option->value != Value::None)
        return value(*option, last.substr(0, end), last.substr(end));
      return result_;
    }
    if (last.starts_with('-')) return options(last);
    if (is_launcher_line && words_.size() == 2) add_commands(last);
    return operand(words_.size() - 1);
  }

 private:
  bool takes_jobs() const {
    return command_->operand == CommandSyntax::Operand::Job ||
           command_->operand == CommandSyntax::Operand::Jobs;
  }

  std::size_t skip_command(std::size_t at) {
    if (at + 1 >= words_.size()) return at;
    for (const CommandSyntax& command : commands_) {
      if (command.name.empty() || command.name != words_[at]) continue;
      command_ = &command;
      return at + 1;
    }
    return at;
  }

  void add(const std::string& word, const std::string& text) {
    result_.candidates.push_back({word, text});
  }

  void add_commands(const std::string& last) {
    for (const CommandSyntax& command : commands_) {
      if (command.name.empty() || !command.name.starts_with(last)) continue;
      // "drun store serves ...": use the text after the name.
      const std::string line = command.head.substr(0, command.head.find('\n'));
      const std::size_t at = line.find(command.name + ' ');
      add(command.name,
          short_text(at == line.npos ? line : line.substr(at + command.name.size() + 1)));
    }
  }

  // `at`: index of the first word that is not an option.
  Completion operand(std::size_t at) {
    if (takes_jobs()) {
      if (!has_job_ || command_->operand == CommandSyntax::Operand::Jobs) result_.more = More::Jobs;
    } else if (command_->operand == CommandSyntax::Operand::Files) {
      result_.more = More::Files;
    } else if (command_->operand == CommandSyntax::Operand::Program) {
      if (at + 1 < words_.size())
        result_.program = at;
      else
        result_.more = More::Programs;
    }
    return std::move(result_);
  }

  Completion options(const std::string& last) {
    const bool has_underscores = last.find('_', 2) != last.npos;
    const std::string prefix = dashed(last);
    for (const OptionSyntax& option : command_->options) {
      if (option.group.empty() || !option.name.starts_with(prefix)) continue;
      add(has_underscores ? underscored(option.name) : std::string(option.name),
          short_text(option.text));
    }
    return std::move(result_);
  }

  // Completes the last element of a comma-separated list. `typed` may contain earlier elements.
  void add_elements(const std::string& stem, const std::string& typed,
                    std::span<const char* const> elements) {
    const std::string before = stem + typed.substr(0, typed.rfind(',') + 1);
    for (const char* const element : elements) {
      if ((before + element).starts_with(stem + typed)) add(before + element, "");
    }
  }

  Completion value(const OptionSyntax& option, const std::string& stem, const std::string& typed) {
    const std::string_view type = option.type;
    const std::string_view name = option.name;
    for (const std::string& choice : choices_of(type))
      if (choice.starts_with(typed)) add(stem + choice, "");
    result_.stem = stem;
    if (type.find("SIGNALS") != type.npos) {
      add_elements(stem, typed, kSignals);
    } else if (name == "--hosts" || name == "--host" || name == "--include" ||
               name == "--exclude") {
      result_.stem = stem + typed.substr(0, typed.find_last_of(",@") + 1);
      result_.more = More::Hosts;
    } else if (name == "--master-addr") {
      result_.more = More::Hosts;
    } else if (name == "--hostfile" || name == "--machinefile" || type == "FILE") {
      result_.more = More::Files;
    } else if (type == "DIR") {
      result_.more = More::Directories;
    } else if (type == "PROGRAM" || type == "COMMAND") {
      result_.more = More::Programs;
    }
    return std::move(result_);
  }

  WordSpan words_;
  std::span<const CommandSyntax> commands_;
  const CommandSyntax* command_;
  bool has_job_ = false;
  Completion result_;
};

// Replaces every "drun" in a script by the name that the script is for.
std::string renamed(std::string_view script, std::string_view name) {
  constexpr std::string_view kOld = "drun";
  std::string text;
  while (true) {
    const std::size_t at = script.find(kOld);
    text += script.substr(0, at);
    if (at == script.npos) return text;
    text += name;
    script.remove_prefix(at + kOld.size());
  }
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
  });
}

std::string tcsh_list(const std::vector<std::string>& words) {
  return "(" + joined(words, " ") + ")";
}

// complete(1): "c/--/LIST/" completes words with this prefix, "n/WORD/LIST/" the word after WORD.
std::string tcsh_script(std::string_view name, std::span<const CommandSyntax> commands) {
  const CommandSyntax& drun = commands.front();
  std::vector<std::string> names;
  std::string rules;
  for (const OptionSyntax& option : drun.options) {
    if (option.group.empty()) continue;
    names.emplace_back(option.name.substr(2));
    if (!takes_next_word(option)) continue;
    const std::vector<std::string> choices = choices_of(option.type);
    const std::string list = !choices.empty()        ? tcsh_list(choices)
                             : option.type == "FILE" ? "f"
                             : option.type == "DIR"  ? "d"
                             : option.type == "PROGRAM" || option.type == "COMMAND" ? "c"
                                                                                    : "n";
    rules += " \\\n  'n/" + std::string(option.name) + "/" + list + "/'";
  }
  return "# tcsh completion for " + std::string(name) + "\ncomplete " + std::string(name) +
         " 'c/--/" + tcsh_list(names) + "/'" + rules + " \\\n  'p/*/f/'\n";
}

}  // namespace

std::vector<std::string> choices_of(std::string_view type) {
  std::vector<std::string> words;
  if (type.find('|') == type.npos) return words;
  for (const std::string_view word : split(type, '|')) {
    const bool is_literal = !word.empty() && std::none_of(word.begin(), word.end(), [](char c) {
      return std::isupper(static_cast<unsigned char>(c)) != 0;
    });
    if (is_literal) words.emplace_back(word);
  }
  return words;
}

Completion complete(WordSpan words, std::span<const CommandSyntax> commands) {
  return Completer(words, commands).run();
}

std::string completion_lines(const Completion& completion) {
  std::string text;
  if (completion.program) {
    text = ":program " + std::to_string(*completion.program);
  } else {
    switch (completion.more) {
      case More::Files:
        text = ":files";
        break;
      case More::Directories:
        text = ":directories";
        break;
      case More::Programs:
        text = ":programs";
        break;
      case More::Hosts:
        text = ":hosts";
        break;
      case More::Nothing:
      case More::Jobs:
        text = ":nothing";
        break;
    }
  }
  text += '\n';
  for (const Completion::Candidate& candidate : completion.candidates) {
    text += candidate.word;
    if (!candidate.text.empty()) text += '\t' + candidate.text;
    text += '\n';
  }
  return text;
}

std::string completion_script(Shell shell, std::string_view invoked_as,
                              std::span<const CommandSyntax> commands) {
  const std::string name(is_plain_name(invoked_as) ? invoked_as : "drun");
  switch (shell) {
    case Shell::Bash:
      return renamed(kBashCompletion, name);
    case Shell::Zsh:
      return renamed(kZshCompletion, name);
    case Shell::Fish:
      return renamed(kFishCompletion, name);
    case Shell::Tcsh:
      return tcsh_script(name, commands);
  }
  return {};
}

}  // namespace drun
