// Takes the place of ssh and of the agent behind it for thousand_hosts.py (launcher/remote/agent_protocol.h). LOGIN_MS: time of the login.
// FACTS: file with the payload of a real agent's first frame. START: file to which the launcher's first line is written, instead of an answer.
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void put(const void* bytes, size_t size) {
  if (write(1, bytes, size) != (ssize_t)size) exit(1);
}

static void put_frame(const char* payload, size_t size) {
  char head[5] = {'C'};
  const unsigned length = htonl((unsigned)size);
  memcpy(head + 1, &length, sizeof length);
  put(head, sizeof head);
  put(payload, size);
}

static void answer_start(char* line) {
  static char facts[1 << 20];
  FILE* file = fopen(getenv("FACTS"), "r");
  const size_t size = file == NULL ? 0 : fread(facts, 1, sizeof facts, file);
  char* nonce = strchr(line, '"') + 1;
  *strchr(nonce, '"') = '\0';
  put("\x1e" "drun ", 6);
  put(nonce, strlen(nonce));
  put("\n", 1);
  put_frame(facts, size);
}

int main(void) {
  static const char kHello[] = "hello [\"\",0,[29400,0,[\"127.0.0.1\"]],\"machine\"]";
  static const char kEnd[] = "end [0,\"\",\"\",false,\"\"]";
  char* line = NULL;
  size_t room = 0;
  usleep(1000 * (unsigned)atoi(getenv("LOGIN_MS")));
  while (getline(&line, &room, stdin) > 0) {
    if (strncmp(line, "start ", 6) == 0 && getenv("START") != NULL) {
      FILE* file = fopen(getenv("START"), "w");
      return file == NULL || fputs(line, file) < 0;
    }
    if (strncmp(line, "start ", 6) == 0) answer_start(line);
    if (strncmp(line, "spec ", 5) == 0) put_frame(kHello, sizeof kHello - 1);
    if (strncmp(line, "go ", 3) == 0) {
      put_frame(kEnd, sizeof kEnd - 1);
      return 0;
    }
  }
  return 0;
}
