/* Connects two network namespaces by a slow link: each gets a TUN device `eth0`, and packets arrive at the
   other one after a delay, or are dropped. For kernels without netem. Runs until it is killed.
   slow_link NAMESPACE OTHER_NAMESPACE DELAY_MS LOSS_PERCENT       prints a line when the devices exist */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { kPackets = 1 << 15, kPacketBytes = 1600 };

struct Packet {
  int64_t due_ns;
  int size;
  char bytes[kPacketBytes];
};

/* One direction: packets wait in the order in which they arrived. */
struct Queue {
  struct Packet* packets;
  unsigned first, count;
};

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void fail(const char* what) {
  perror(what);
  exit(1);
}

/* The descriptor stays usable outside of the namespace. */
static int open_device(const char* namespace) {
  char path[256];
  snprintf(path, sizeof path, "/run/netns/%s", namespace);
  const int of_namespace = open(path, O_RDONLY | O_CLOEXEC);
  if (of_namespace < 0 || setns(of_namespace, CLONE_NEWNET) != 0) fail(path);
  close(of_namespace);
  const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
  strcpy(request.ifr_name, "eth0");
  if (device < 0 || ioctl(device, TUNSETIFF, &request) != 0) fail("/dev/net/tun");
  return device;
}

static void take_packets(struct Queue* queue, int device, int64_t delay_ns, double loss) {
  while (queue->count < kPackets) {
    struct Packet* packet = &queue->packets[(queue->first + queue->count) % kPackets];
    const ssize_t size = read(device, packet->bytes, sizeof packet->bytes);
    if (size <= 0) return;
    if (drand48() < loss) continue;
    packet->size = (int)size;
    packet->due_ns = now_ns() + delay_ns;
    ++queue->count;
  }
}

static void give_packets(struct Queue* queue, int device, int64_t* next_ns) {
  while (queue->count > 0) {
    const struct Packet* packet = &queue->packets[queue->first];
    if (packet->due_ns > now_ns()) {
      if (packet->due_ns < *next_ns) *next_ns = packet->due_ns;
      return;
    }
    if (write(device, packet->bytes, (size_t)packet->size) < 0) { /* dropped, as by a full queue */
    }
    queue->first = (queue->first + 1) % kPackets;
    --queue->count;
  }
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const int64_t delay_ns = (int64_t)(atof(argv[3]) * 1e6);
  const double loss = atof(argv[4]) / 100;
  srand48(1);
  struct pollfd devices[2];
  struct Queue queues[2];
  for (int i = 0; i < 2; ++i) {
    devices[i] = (struct pollfd){.fd = open_device(argv[1 + i]), .events = POLLIN};
    queues[i] = (struct Queue){.packets = malloc(kPackets * sizeof(struct Packet))};
    if (queues[i].packets == NULL) fail("memory");
  }
  puts("connected");
  fflush(stdout);
  while (1) {
    int64_t next_ns = now_ns() + 1000000000;
    for (int i = 0; i < 2; ++i) take_packets(&queues[i], devices[i].fd, delay_ns, loss);
    for (int i = 0; i < 2; ++i) give_packets(&queues[i], devices[1 - i].fd, &next_ns);
    const int64_t left_ns = next_ns - now_ns();
    const struct timespec time = {.tv_nsec = left_ns < 1 ? 1 : left_ns % 1000000000};
    ppoll(devices, 2, &time, NULL);
  }
}
