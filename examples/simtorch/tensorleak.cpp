/*
 * tensorleak: a loop of three functions. One of them leaks: grow_list keeps a tensor in every step
 * and never uses it again. fill_cache keeps a tensor in each of its first steps only.
 * use_temporaries frees all its tensors. At the end the program prints the bytes that each function
 * keeps, for comparison with a recording.
 */
#include "program.h"
#include "simtorch.h"

#include <csignal>
#include <cstring>
#include <getopt.h>
#include <vector>

/* Marks functions that must appear as stack frames. -rdynamic exports their names, so that
 * stacks show them without debug info. */
#define FRAME __attribute__((noinline))

namespace {

struct Options {
	unsigned long steps = 500, step_ms = 10, leak_bytes = 256 << 10, cache = 50;
	bool wait = false;
} options;

enum { CACHED_BYTES = 1 << 20, TEMPORARIES = 8 };

std::vector<void *> list, cache;
volatile sig_atomic_t stop;

void *tensor(size_t bytes)
{
	void *ptr = simtorch_alloc(bytes, nullptr);
	if (!ptr) {
		fprintf(stderr, "tensorleak: error: out of memory\n");
		exit(1);
	}
	return ptr;
}

} // namespace

/* The leak: keeps one tensor per step. */
FRAME void grow_list()
{
	if (options.leak_bytes)
		list.push_back(tensor(options.leak_bytes));
}

FRAME void fill_cache()
{
	if (cache.size() < options.cache)
		cache.push_back(tensor(CACHED_BYTES));
}

/* Sizes differ between steps, as for sentences of different lengths. */
FRAME void use_temporaries(unsigned long step)
{
	void *temporaries[TEMPORARIES];
	for (unsigned long i = 0; i < TEMPORARIES; i++)
		temporaries[i] = tensor((64 + (step * 37 + i * 11) % 192) << 10);
	for (void *temporary : temporaries)
		simtorch_free(temporary);
}

FRAME void train_step(unsigned long step)
{
	use_temporaries(step);
	fill_cache();
	grow_list();
}

static void usage()
{
	fprintf(stderr, "usage: tensorleak [--steps N] [--step-ms M] [--leak-bytes B] [--cache TENSORS] [--wait]   (--steps 0: for ever)\n");
	exit(2);
}

static unsigned long number(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 0);
	if (!*text || *end || *text == '-')
		usage();
	return n;
}

static void read_options(int argc, char **argv)
{
	static const struct option known[] = {
		{"steps", 1, nullptr, 's'}, {"step-ms", 1, nullptr, 'm'}, {"leak-bytes", 1, nullptr, 'b'},
		{"cache", 1, nullptr, 'c'}, {"wait", 0, nullptr, 'w'}, {},
	};
	for (int option; (option = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
		switch (option) {
		case 's': options.steps = number(optarg); break;
		case 'm': options.step_ms = number(optarg); break;
		case 'b': options.leak_bytes = number(optarg); break;
		case 'c': options.cache = number(optarg); break;
		case 'w': options.wait = true; break;
		default: usage();
		}
	}
	if (optind != argc)
		usage();
}

static void truth(const char *function, size_t kept, bool leaks, double minutes)
{
	printf("truth\t%s\t%s\t%zu\t%.0f\n", function, leaks ? "leaks" : "keeps", kept, leaks ? (double)kept / minutes : 0);
}

int main(int argc, char **argv)
{
	read_options(argc, argv);
	struct sigaction action = {};
	action.sa_handler = [](int) { stop = 1; };
	sigaction(SIGINT, &action, nullptr);
	sigaction(SIGTERM, &action, nullptr);
	simtorch_init();
	if (options.wait)
		announce_ready();

	double start = now_ns();
	unsigned long step = 0;
	for (; !stop && (options.steps == 0 || step < options.steps); step++) {
		train_step(step);
		double ahead = start + (double)(step + 1) * (double)options.step_ms * 1e6 - now_ns();
		if (ahead > 0)
			sleep_ns(ahead);
	}
	double minutes = (now_ns() - start) / 60e9;
	simtorch_checkpoint();
	printf("done %lu\n", step);
	truth("grow_list", list.size() * options.leak_bytes, true, minutes);
	truth("fill_cache", cache.size() * CACHED_BYTES, false, minutes);
	truth("use_temporaries", 0, false, minutes);
	fflush(stdout);
	if (options.wait)
		wait_for_stdin();
	return 0;
}
