/* Measures MPI_Allreduce (sum of floats), and MPI_Sendrecv to the next rank and from the previous
   one, in the same way as `drun-perf all_reduce` and `drun-perf send_recv`: before each timed block,
   the buffers are filled, one operation runs, and its result is read.
   mpi_perf OPERATION MIN_BYTES MAX_BYTES SECONDS       rank 0 prints "bytes time_us" lines */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBlocks = 15, kGuesses = 5 };

typedef void Operation(float* data, float* other, int count);

static void all_reduce(float* data, float* other, int count) {
  (void)other;
  MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void send_recv(float* data, float* other, int count) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Sendrecv(data, count, MPI_FLOAT, (rank + 1) % size, 0, other, count, MPI_FLOAT,
               (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static double seconds_of(Operation* operation, float* data, float* other, int count, int times) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < times; ++i) operation(data, other, count);
  return MPI_Wtime() - start;
}

/* Leaves the caches as drun-perf does, which fills its buffers and checks the result. */
static int fill_and_check(Operation* operation, float* data, float* other, int count) {
  for (int i = 0; i < count; ++i) {
    data[i] = (float)(1 + i % 2);
    other[i] = 0;
  }
  operation(data, other, count);
  for (int i = 0; i < count; ++i) {
    if (data[i] < 1 || (operation == send_recv && other[i] != data[i])) return 0;
  }
  return 1;
}

static double largest(double value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return value;
}

static int by_value(const void* a, const void* b) {
  const double left = *(const double*)a;
  const double right = *(const double*)b;
  return (left > right) - (left < right);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc != 5) return 2;
  Operation* operation = strcmp(argv[1], "send_recv") == 0 ? send_recv : all_reduce;
  const long most = atol(argv[3]);
  const double budget = atof(argv[4]);
  const size_t room = (size_t)most / sizeof(float) + 1;
  float* data = malloc(room * sizeof(float));
  float* other = malloc(room * sizeof(float));
  // Writes to all pages; unwritten pages would all be the kernel's shared zero page.
  for (size_t i = 0; i < room; ++i) data[i] = other[i] = 1;
  for (long bytes = atol(argv[2]); bytes <= most; bytes *= 4) {
    const int count = (int)(bytes / (long)sizeof(float));
    double least = seconds_of(operation, data, other, count, 2);
    for (int i = 1; i < kGuesses; ++i) {
      const double guess = seconds_of(operation, data, other, count, 2);
      if (guess < least) least = guess;
    }
    const double once = largest(least / 2);
    double times = budget / kBlocks / (once > 1e-8 ? once : 1e-8);
    times = times < 1 ? 1 : times > 1e6 ? 1e6 : times;
    double seconds[kBlocks];
    for (int i = 0; i < kBlocks; ++i) {
      if (!fill_and_check(operation, data, other, count)) MPI_Abort(MPI_COMM_WORLD, 1);
      seconds[i] = seconds_of(operation, data, other, count, (int)times) / (int)times;
    }
    qsort(seconds, kBlocks, sizeof(double), by_value);
    const double median = largest(seconds[kBlocks / 2]);
    if (rank == 0) printf("%ld %.3f\n", bytes, median * 1e6);
    fflush(stdout);
  }
  free(data);
  free(other);
  MPI_Finalize();
  return 0;
}
