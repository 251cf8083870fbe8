// Half a round trip between two ranks of MPI: "mpi_turns SIZE SECONDS" prints round trips and seconds.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int size = argc > 2 ? atoi(argv[1]) : 1;
  const double seconds = argc > 2 ? atof(argv[2]) : 1;
  // The first byte says whether there is another turn.
  char* data = calloc(1, (size_t)size);
  const double start = MPI_Wtime();
  double took = 0;
  long turns = 0;
  for (data[0] = 1; data[0] != 0; ++turns) {
    if (rank == 0) {
      took = MPI_Wtime() - start;
      data[0] = took < seconds;
      MPI_Send(data, size, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
      MPI_Recv(data, size, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Recv(data, size, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(data, size, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    }
  }
  if (rank == 0) printf("%ld %.6f\n", turns - 1, took);
  free(data);
  MPI_Finalize();
  return 0;
}
