/*
 * busyleak: keeps many tensors, allocates and frees others as fast as it can, and leaks. Between
 * steps it pauses for a fraction of a millisecond: a recorder that reads the allocator's blocks
 * has no more time. At the end it prints the number of tensors that it keeps.
 */
#include "program.h"
#include "simtorch.h"

#include <cstdlib>
#include <getopt.h>
#include <poll.h>
#include <vector>

namespace {

struct Options {
	unsigned long blocks = 20000, leaks = 500, replaced = 300, tensors = 60, pause_us = 300, ms = 600000, seed = 1;
} options;

struct Kept {
	void *ptr;
	size_t bytes;
};

std::vector<Kept> kept;

void *tensor(size_t bytes)
{
	void *ptr = simtorch_alloc(bytes, nullptr);
	if (!ptr) {
		fprintf(stderr, "busyleak: error: out of memory\n");
		exit(1);
	}
	return ptr;
}

/* Two blocks of most sizes have different requests. */
size_t kept_size(Random &random)
{
	return random.one_in(200) ? (1 << 20) + random.below(4 << 20) : 1 + random.below(4096);
}

void keep(size_t bytes)
{
	kept.push_back({tensor(bytes), bytes});
}

/* Replaces a tensor by one of the same size, mostly. Others have the same block size, or any. */
void replace(Kept &old, Random &random)
{
	simtorch_free(old.ptr);
	uint64_t kind = random.below(8);
	if (kind == 0)
		old.bytes = kept_size(random);
	else if (kind == 1)
		old.bytes = (old.bytes - 1) / 512 * 512 + 1 + random.below(512);
	old.ptr = tensor(old.bytes);
}

/* Uses tensors of the same sizes in each step, as a layer does, and a few of any size. */
void use_temporaries(Random &random, std::vector<void *> &temporaries)
{
	for (unsigned long i = 0; i < options.tensors; i++)
		temporaries.push_back(tensor(random.one_in(16) ? kept_size(random) : 512 * (1 + i % 7)));
	for (void *temporary : temporaries)
		simtorch_free(temporary);
	temporaries.clear();
}

/* Does nothing without giving up the processor, for between a third of the longest time and all of it. */
void pause(Random &random)
{
	double ns = (double)options.pause_us * 1e3;
	double end = now_ns() + ns / 3 + (double)random.below(1000) / 1000 * ns * 2 / 3;
	while (now_ns() < end)
		;
}

/* Returns true if stdin has a byte or is closed. */
bool has_stdin()
{
	struct pollfd stdin_poll = {STDIN_FILENO, POLLIN, 0};
	return poll(&stdin_poll, 1, 0) > 0;
}

unsigned long number(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 0);
	if (!*text || *end || *text == '-') {
		fprintf(stderr, "busyleak: error: %s is not a number\n", text);
		exit(2);
	}
	return n;
}

void read_options(int argc, char **argv)
{
	static const struct {
		struct option option;
		unsigned long *value;
	} known[] = {
		{{"blocks", 1, nullptr, 0}, &options.blocks}, {{"leaks", 1, nullptr, 0}, &options.leaks},
		{{"replaced", 1, nullptr, 0}, &options.replaced}, {{"tensors", 1, nullptr, 0}, &options.tensors},
		{{"pause-us", 1, nullptr, 0}, &options.pause_us}, {{"ms", 1, nullptr, 0}, &options.ms},
		{{"seed", 1, nullptr, 0}, &options.seed},
	};
	std::vector<struct option> list;
	for (auto &k : known)
		list.push_back(k.option);
	list.push_back({});
	for (int index; getopt_long(argc, argv, "", list.data(), &index) == 0;)
		*known[index].value = number(optarg);
	if (optind != argc) {
		fprintf(stderr, "usage: busyleak [--blocks N] [--leaks PER_S] [--replaced PER_S] [--tensors N] [--pause-us N] [--ms N] [--seed N]\n");
		exit(2);
	}
}

} // namespace

int main(int argc, char **argv)
{
	read_options(argc, argv);
	simtorch_init();
	Random random(options.seed, 0);
	while (kept.size() < options.blocks)
		keep(kept_size(random));
	announce_ready();

	std::vector<void *> temporaries;
	unsigned long leaked = 0, replaced = 0;
	double start = now_ns(), seconds = 0;
	for (; seconds * 1e3 < (double)options.ms && !has_stdin(); seconds = (now_ns() - start) / 1e9) {
		use_temporaries(random, temporaries);
		for (; (double)leaked < seconds * (double)options.leaks; leaked++)
			keep(2048);
		for (; (double)replaced < seconds * (double)options.replaced; replaced++) {
			replace(kept[random.below(kept.size())], random);
		}
		pause(random);
	}
	simtorch_checkpoint();
	printf("done %zu kept, %.0f events/s\n", kept.size(), (double)simtorch_events() / seconds);
	return 0;
}
