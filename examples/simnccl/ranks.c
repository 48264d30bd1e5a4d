/*
 * ranks: one rank of a data-parallel job on simnccl, with known faults.
 *
 *   ranks [--steps N] [--buckets N] [--split] [--sharded] [--jitter X] [--seed N] [--host-us N] [--kernel-us N]
 *         [--bucket-kb N] [--loss N] [--start FILE] [--count FILE] [--fault "RANK STEP WHAT [VALUE]"]…
 *         [--faults FILE]
 *
 * RANK, WORLD_SIZE, LOCAL_RANK and MASTER_PORT come from the environment, see simrun. The program
 * prints "ready RANK PID" before it makes its communicators, "fault RANK STEP WHAT NS" at the first
 * effect of a fault (CLOCK_MONOTONIC), "steps RANK" after 20 steps, and "done RANK STEPS" at the end.
 * With --count, each rank counts the steps of faults from its first step on at which the file exists.
 */
#include "ranks.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STEPS_TOLD = 20 };

struct ranks_api api;

void check(int result, const char *call)
{
	if (!result)
		return;
	fprintf(stderr, "ranks: %s: result %d\n", call, result);
	exit(1);
}

void rank_sleep_ns(uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
	nanosleep(&t, NULL);
}

double random_unit(struct job *j)
{
	j->random ^= j->random << 13;
	j->random ^= j->random >> 7;
	j->random ^= j->random << 17;
	return (double)(j->random >> 11) / (double)(1ull << 53);
}

static void *open_library(const char *name)
{
	void *library = dlopen(name, RTLD_NOW);
	if (library)
		return library;
	fprintf(stderr, "ranks: %s\n", dlerror());
	exit(1);
}

static void find_libraries(void)
{
	void *cuda = open_library("libcuda.so.1"), *nccl = open_library("libnccl.so.2");
	bool found = true;
#define X(name) found = found && (api.name = (__typeof__(api.name))dlsym(cuda, #name));
	CUDA_FUNCTIONS(X)
#undef X
#define X(result, name, parameters) found = found && (api.name = (__typeof__(api.name))dlsym(nccl, #name));
	NCCL_FUNCTIONS(X)
#undef X
	api.simncclNetwork = (__typeof__(api.simncclNetwork))dlsym(nccl, "simncclNetwork");
	if (found && api.simncclNetwork)
		return;
	fprintf(stderr, "ranks: the libraries lack functions\n");
	exit(1);
}

static CUfunction load(const char *name)
{
	char ptx[512];
	CUmodule module;
	CUfunction function;
	snprintf(ptx, sizeof(ptx), ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry %s(.param .u64 duration_ns) { ret; }\n", name);
	CALL(cuModuleLoadData, &module, ptx);
	CALL(cuModuleGetFunction, &function, module, name);
	return function;
}

static void set_up(struct job *j)
{
	CUcontext context;
	CALL(cuInit, 0);
	CALL(cuDevicePrimaryCtxRetain, &context, j->local_rank);
	CALL(cuCtxSetCurrent, context);
	j->forward = load("forward_layer");
	j->backward = load("backward_layer");
	j->update = load("update_weights");
	CALL(cuStreamCreateWithPriority, &j->main, CU_STREAM_NON_BLOCKING, 0);
	CALL(cuStreamCreateWithPriority, &j->communication, CU_STREAM_NON_BLOCKING, -1);
	CUevent *events[] = {&j->ready, &j->reduced, &j->copied, &j->ends[0], &j->ends[1]};
	for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++)
		CALL(cuEventCreate, events[i], CU_EVENT_DISABLE_TIMING);
	CALL(cuMemAlloc_v2, &j->device, j->batch_bytes * 16);
	CALL(cuMemAlloc_v2, &j->gradients, j->bucket_bytes * BUCKETS_MAX);
	CALL(cuMemHostAlloc, &j->batch, j->batch_bytes * 16, 0);
}

static void wait_for_file(const char *path)
{
	struct stat st;
	while (path && stat(path, &st))
		rank_sleep_ns(5000000);
}

/* Rank 0 writes the unique id to a file, as PyTorch's store does over TCP. */
static ncclUniqueId exchange_id(const struct job *j)
{
	ncclUniqueId id;
	char path[512], name[600];
	const char *folder = getenv("SIMNCCL_DIR"), *port = getenv("MASTER_PORT");
	snprintf(path, sizeof(path), "%s/ranks-%s", folder ? folder : "/dev/shm", port ? port : "0");
	snprintf(name, sizeof(name), "%s.new", path);
	FILE *file;
	if (j->rank == 0) {
		CALL(ncclGetUniqueId, &id);
		if (!(file = fopen(name, "we")) || fwrite(&id, sizeof(id), 1, file) != 1 || fclose(file) || rename(name, path))
			check(1, "write of the unique id");
		return id;
	}
	wait_for_file(path);
	if (!(file = fopen(path, "re")) || fread(&id, sizeof(id), 1, file) != 1)
		check(1, "read of the unique id");
	fclose(file);
	return id;
}

static void join(struct job *j)
{
	double value;
	ncclUniqueId id = exchange_id(j);
	j->step = -1;
	while (fault_acts(j, INIT, false, &value))
		pause();
	CALL(ncclCommInitRank, &j->world, j->size, id, j->rank);
	if (j->split)
		CALL(ncclCommSplit, j->world, j->rank / 2, j->rank, &j->pair, NULL);
}

static void refuse(void)
{
	fprintf(stderr, "usage: ranks [--steps N] [--buckets N] [--split] [--sharded] [--jitter X] [--seed N] [--host-us N] [--kernel-us N]\n"
			"             [--bucket-kb N] [--loss N] [--start FILE] [--count FILE] [--fault \"RANK STEP WHAT [VALUE]\"]…\n"
			"             [--faults FILE]\nfaults:");
	for (int i = 0; i < FAULTS; i++)
		fprintf(stderr, " %s", fault_names[i]);
	fprintf(stderr, "\n");
	exit(2);
}

static void read_options(struct job *j, int argc, char **argv)
{
	static const struct option list[] = {
		{"steps", required_argument, NULL, 'n'},     {"buckets", required_argument, NULL, 'b'}, {"split", no_argument, NULL, 's'},
		{"jitter", required_argument, NULL, 'j'},    {"seed", required_argument, NULL, 'r'},    {"host-us", required_argument, NULL, 'h'},
		{"kernel-us", required_argument, NULL, 'k'}, {"bucket-kb", required_argument, NULL, 'B'}, {"start", required_argument, NULL, 'S'},
		{"count", required_argument, NULL, 'C'},     {"loss", required_argument, NULL, 'l'},     {"sharded", no_argument, NULL, 'd'},
		{"fault", required_argument, NULL, 'f'},     {"faults", required_argument, NULL, 'F'},  {NULL, 0, NULL, 0},
	};
	for (int option; (option = getopt_long(argc, argv, "", list, NULL)) != -1;) {
		switch (option) {
		case 'n': j->steps = atoi(optarg); break;
		case 'b': j->buckets = atoi(optarg); break;
		case 's': j->split = true; break;
		case 'd': j->sharded = true; break;
		case 'j': j->jitter = atof(optarg); break;
		case 'r': j->random = strtoull(optarg, NULL, 0); break;
		case 'h': j->host_ns = strtoull(optarg, NULL, 0) * 1000; break;
		case 'k': j->kernel_ns = strtoull(optarg, NULL, 0) * 1000; break;
		case 'B': j->bucket_bytes = strtoull(optarg, NULL, 0) << 10; break;
		case 'S': j->start = optarg; break;
		case 'C': j->count = optarg; break;
		case 'l': j->loss = atoi(optarg); break;
		case 'f': fault_add(optarg); break;
		case 'F': fault_read(optarg); break;
		default: refuse();
		}
	}
	if (optind != argc || j->buckets < 1 || j->buckets > BUCKETS_MAX || j->steps < 1)
		refuse();
}

static int from_environment(const char *name, int otherwise)
{
	const char *text = getenv(name);
	return text ? atoi(text) : otherwise;
}

/* Returns the number of the next step, -1 while the file that lets it count does not exist. */
static int count_step(const struct job *j)
{
	struct stat st;
	return j->step >= 0 || !j->count || !stat(j->count, &st) ? j->step + 1 : -1;
}

int main(int argc, char **argv)
{
	struct job j = {
		.rank = from_environment("RANK", 0), .size = from_environment("WORLD_SIZE", 1), .local_rank = from_environment("LOCAL_RANK", 0),
		.steps = 100, .buckets = 3, .jitter = 0.02, .host_ns = 1000000, .kernel_ns = 500000, .bucket_bytes = 4 << 20,
		.batch_bytes = 1 << 20, .random = 1,
	};
	read_options(&j, argc, argv);
	j.random = (j.random * 1009 + (uint64_t)j.rank + 1) * 0x9e3779b97f4a7c15ull | 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	find_libraries();
	set_up(&j);
	printf("ready %d %d\n", j.rank, (int)getpid());
	wait_for_file(j.start);
	join(&j);
	for (j.made = 0; j.made < j.steps; j.made++) {
		j.step = count_step(&j);
		job_step(&j);
		if (j.made == STEPS_TOLD)
			printf("steps %d\n", j.rank);
	}
	job_drain(&j);
	printf("done %d %d\n", j.rank, j.steps);
	return 0;
}
