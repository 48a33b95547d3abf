#include "agent/status/redaction.h"

#include "tests/support/catch.h"

namespace drun::agent {
namespace {

using Words = std::vector<std::string>;

const std::string kGone(kRedacted);

}  // namespace

TEST_CASE("names of secrets are recognized by their parts") {
  for (const char* const name :
       {"HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "password", "--api-key", "DB_PASSWD",
        "GITHUB_TOKEN", "my.secret", "SSH_AUTH_SOCK", "--auth_token"})
    CHECK(is_secret_name(name));
  for (const char* const name : {"PATH", "PWD", "OLDPWD", "MONKEY", "TOKENIZER_PARALLELISM",
                                 "KEYBOARD", "NCCL_DEBUG", "--lr", ""})
    CHECK_FALSE(is_secret_name(name));
}

TEST_CASE("passwords in addresses and values that look like keys are replaced") {
  CHECK(without_secrets("https://me:pw@host/x?y=a@b") == "https://" + kGone + "@host/x?y=a@b");
  CHECK(without_secrets("https://host/x@y") == "https://host/x@y");
  CHECK(without_secrets("a=postgres://u:p@db b=redis://:p@r/0") ==
        "a=postgres://" + kGone + "@db b=redis://" + kGone + "@r/0");
  CHECK(without_secrets("hf_abcdefghijklmnop") == kGone);
  CHECK(without_secrets("AKIAIOSFODNN7EXAMPLE") == kGone);
  CHECK(without_secrets("sk-short") == "sk-short");
  CHECK(without_secrets("") == "");
}

TEST_CASE("a command keeps its words except for secrets") {
  CHECK(redacted_command({"train.py", "--token=abc", "--lr=1", "--api-key", "xyz", "--lr", "2"}) ==
        Words{"train.py", "--token=" + kGone, "--lr=1", "--api-key", kGone, "--lr", "2"});
  CHECK(redacted_command({"env", "HF_TOKEN=abc", "a"}) == Words{"env", "HF_TOKEN=" + kGone, "a"});
  CHECK(redacted_command({"x", "--password", "--verbose"}) ==
        Words{"x", "--password", "--verbose"});
  CHECK(redacted_command({"x", "--secret-file", "a"}) == Words{"x", "--secret-file", "a"});
  CHECK(redacted_command({"x", "--url=https://u:p@h/"}) ==
        Words{"x", "--url=https://" + kGone + "@h/"});
  CHECK(redacted_command({}).empty());
}

TEST_CASE("only relevant environment variables are reported, without secrets") {
  const auto shown = reported_environment({{"WORLD_SIZE", "2"},
                                           {"NCCL_DEBUG", "INFO"},
                                           {"MY_LETTERS", "private"},
                                           {"SLURM_JWT", "abc"},
                                           {"TORCH_URL", "https://u:p@h"},
                                           {"PATH", std::string(5000, 'x')}});
  REQUIRE(shown.size() == 5);
  CHECK(shown[0] == EnvironmentEntry{"NCCL_DEBUG", "INFO"});
  CHECK(shown[1].second.size() < 1100);
  CHECK(shown[2] == EnvironmentEntry{"SLURM_JWT", kGone});
  CHECK(shown[3] == EnvironmentEntry{"TORCH_URL", "https://" + kGone + "@h"});
  CHECK(shown[4] == EnvironmentEntry{"WORLD_SIZE", "2"});
  std::vector<EnvironmentEntry> many;
  for (int i = 0; i < 1000; ++i) many.push_back({"NCCL_" + std::to_string(i), "1"});
  CHECK(reported_environment(many).size() == 256);
}

}  // namespace drun::agent
