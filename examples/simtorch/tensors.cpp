/* tensors: random requests that use all features of the allocator, from several threads. Tests
 * compare a recording with the ledger; benchmarks measure the recorder's overhead. */
#include "program.h"
#include "simtorch.h"

#include <cstring>
#include <getopt.h>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

/* Marks functions that must appear as stack frames. -rdynamic exports their names, so that
 * stacks show them without debug info. */
#define FRAME __attribute__((noinline))

namespace {

struct Tensor {
	void *ptr;
	size_t bytes;
};

struct Options {
	uint64_t events = 0, threads = 1, streams = 2, seed = 1, devices = 1, rate = 0, checkpoint = 500, host = 0;
	bool wait = false;
} options;

enum { LIVE_MAX = 96, POOLED = 6, WAVE = 400, DEVICES_MAX = 8, SHARED_MAX = 64 };

/* Side streams of each device, and tensors that one thread allocates and another frees. */
std::vector<void *> streams[DEVICES_MAX];
std::mutex shared_lock;
std::vector<Tensor> shared;

class Worker {
	Random random;
	int index, device;
	uint64_t acts = 0, checked = 0;
	std::vector<Tensor> live, pooled, captured;
	uint64_t pool = 0, graph = 0;

public:
	uint64_t quota, events = 0;

	Worker(int index, uint64_t quota)
		: random(options.seed, (uint64_t)index), index(index), device(index % (int)options.devices), quota(quota) {}
	void run();

private:
	void act();
	void *any_stream();
	size_t any_size();
	Tensor take_from(std::vector<Tensor> &from);
	void make_tensor(std::vector<Tensor> &to, size_t bytes, void *stream);
	void free_tensor();
	void hand_over();
	void free_of_another();
	void use_elsewhere();
	void use_private_pool();
	void capture_graph();
	void ask_for_too_much();
	void keep_pace(double start) const;
};

void *Worker::any_stream()
{
	uint64_t i = random.below(streams[device].size() + 1);
	return i ? streams[device][i - 1] : nullptr;
}

/* Returns a random size: mostly small, with every order of magnitude equally likely. Sometimes a
 * size at which the allocator's rules change. */
size_t Worker::any_size()
{
	static const size_t edges[] = {1, 512, 513, 1 << 20, (1 << 20) + 1, 10 << 20, (10 << 20) - 1, 2 << 20, 20 << 20};
	if (random.one_in(20))
		return edges[random.below(sizeof(edges) / sizeof(*edges))];
	uint64_t kind = random.below(100), order = kind < 60 ? random.below(17) : kind < 85 ? 17 + random.below(4) : 21 + random.below(4);
	return ((size_t)1 << order) + random.below((size_t)1 << order);
}

Tensor Worker::take_from(std::vector<Tensor> &from)
{
	std::swap(from[random.below(from.size())], from.back());
	Tensor taken = from.back();
	from.pop_back();
	return taken;
}

/* Allocates a tensor. If out of memory, frees half of the live tensors instead. */
FRAME void Worker::make_tensor(std::vector<Tensor> &to, size_t bytes, void *stream)
{
	void *ptr = simtorch_alloc(bytes, stream);
	if (ptr)
		to.push_back({ptr, bytes});
	else
		for (size_t n = live.size() / 2; n > 0; n--)
			free_tensor();
}

FRAME void Worker::free_tensor()
{
	if (!live.empty())
		simtorch_free(take_from(live).ptr);
}

FRAME void Worker::hand_over()
{
	std::lock_guard<std::mutex> lock(shared_lock);
	if (!live.empty() && shared.size() < SHARED_MAX)
		shared.push_back(take_from(live));
}

FRAME void Worker::free_of_another()
{
	Tensor tensor = {};
	{
		std::lock_guard<std::mutex> lock(shared_lock);
		if (!shared.empty())
			tensor = take_from(shared);
	}
	if (tensor.ptr)
		simtorch_free(tensor.ptr);
}

/* Uses a tensor on a second stream and frees it at once, usually before that stream is done. */
FRAME void Worker::use_elsewhere()
{
	if (live.empty() || streams[device].empty())
		return;
	Tensor tensor = take_from(live);
	void *stream = any_stream();
	simtorch_record_stream(tensor.ptr, stream);
	simtorch_work(tensor.ptr, tensor.bytes, stream);
	simtorch_free(tensor.ptr);
}

FRAME void Worker::use_private_pool()
{
	if (pool) {
		while (!pooled.empty())
			simtorch_free(take_from(pooled).ptr);
		simtorch_pool_destroy(pool);
		pool = 0;
		return;
	}
	pool = simtorch_pool_create();
	simtorch_pool_begin(pool);
	for (int i = 0; i < POOLED; i++)
		make_tensor(pooled, any_size(), any_stream());
	simtorch_pool_end(pool);
}

FRAME void Worker::capture_graph()
{
	if (graph) {
		while (!captured.empty())
			simtorch_free(take_from(captured).ptr);
		simtorch_graph_destroy(graph);
		graph = 0;
		return;
	}
	void *stream;
	graph = simtorch_graph_begin(&stream);
	for (int i = 0; i < POOLED; i++) {
		make_tensor(captured, any_size(), stream);
		if (!captured.empty())
			simtorch_work(captured.back().ptr, captured.back().bytes, stream);
		if (!captured.empty() && random.one_in(2))
			simtorch_free(take_from(captured).ptr);
	}
	simtorch_graph_end(graph);
}

FRAME void Worker::ask_for_too_much()
{
	void *ptr = simtorch_alloc(simtorch_memory() + (16 << 20), nullptr);
	if (ptr) {
		fprintf(stderr, "tensors: error: a request larger than the device succeeded\n");
		exit(1);
	}
}

/* Alternates between waves with more requests than frees and waves with fewer. This fragments
 * memory. */
void Worker::act()
{
	bool growing = acts++ / WAVE % 2 == 0;
	uint64_t n = random.below(1000), frees = growing ? 350 : 520;
	if (live.size() >= LIVE_MAX || n < frees)
		free_tensor();
	else if (n < frees + 50)
		hand_over();
	else if (n < frees + 100)
		free_of_another();
	else if (n < frees + 140)
		use_elsewhere();
	else if (n < frees + 150)
		use_private_pool();
	else if (n < frees + 155)
		capture_graph();
	else if (n < frees + 157)
		simtorch_empty_cache();
	else if (n < frees + 158)
		simtorch_snapshot();
	else if (n < frees + 160)
		ask_for_too_much();
	else
		make_tensor(live, any_size(), any_stream());
}

/* Limits the rate of events. Short sleeps are inaccurate, so a thread sleeps only when it is 1
 * ms or more ahead. */
void Worker::keep_pace(double start) const
{
	double ahead = start + (double)events * 1e9 * (double)options.threads / (double)options.rate - now_ns();
	if (ahead >= 1e6)
		sleep_ns(ahead);
}

void Worker::run()
{
	simtorch_set_device(device);
	double start = now_ns();
	while (events < quota) {
		act();
		if (options.host && acts % options.host == 0)
			simtorch_host_tensor(4096);
		events = simtorch_events();
		if (index == 0 && events - checked >= options.checkpoint) {
			simtorch_checkpoint();
			simtorch_verify();
			checked = events;
		}
		if (options.rate)
			keep_pace(start);
	}
}

void usage()
{
	fprintf(stderr, "usage: tensors --events N [--threads T] [--streams S] [--seed K] [--devices D] [--rate EVENTS_PER_S]\n"
			"               [--checkpoint EVENTS] [--host ACTS] [--wait]\n");
	exit(2);
}

uint64_t number(const char *text)
{
	char *end;
	long n = strtol(text, &end, 0);
	if (!*text || *end || n < 0)
		usage();
	return (uint64_t)n;
}

void read_options(int argc, char **argv)
{
	static const struct option known[] = {
		{"events", 1, nullptr, 'e'}, {"threads", 1, nullptr, 't'}, {"streams", 1, nullptr, 's'},
		{"seed", 1, nullptr, 'k'}, {"devices", 1, nullptr, 'd'}, {"rate", 1, nullptr, 'r'},
		{"checkpoint", 1, nullptr, 'c'}, {"host", 1, nullptr, 'h'}, {"wait", 0, nullptr, 'w'}, {},
	};
	for (int option; (option = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
		switch (option) {
		case 'e': options.events = number(optarg); break;
		case 't': options.threads = number(optarg); break;
		case 's': options.streams = number(optarg); break;
		case 'k': options.seed = number(optarg); break;
		case 'd': options.devices = number(optarg); break;
		case 'r': options.rate = number(optarg); break;
		case 'c': options.checkpoint = number(optarg); break;
		case 'h': options.host = number(optarg); break;
		case 'w': options.wait = true; break;
		default: usage();
		}
	}
	if (!options.events || !options.threads || !options.devices || options.devices > DEVICES_MAX || optind != argc)
		usage();
}

void set_up()
{
	setenv("SIMCUDA_DEVICES", std::to_string(options.devices).c_str(), 0);
	if (simtorch_init() < (int)options.devices) {
		fprintf(stderr, "tensors: error: fewer than %d devices\n", (int)options.devices);
		exit(1);
	}
	for (int device = 0; device < (int)options.devices; device++) {
		simtorch_set_device(device);
		for (uint64_t i = 0; i < options.streams; i++)
			streams[device].push_back(simtorch_stream());
	}
}

} // namespace

int main(int argc, char **argv)
{
	read_options(argc, argv);
	set_up();
	if (options.wait)
		announce_ready();

	double start = now_ns();
	std::vector<std::unique_ptr<Worker>> workers;
	std::vector<std::thread> threads;
	for (uint64_t i = 0; i < options.threads; i++) {
		uint64_t quota = options.events / options.threads + (i < options.events % options.threads);
		workers.push_back(std::make_unique<Worker>((int)i, quota));
	}
	for (auto &worker : workers)
		threads.emplace_back([&worker] { worker->run(); });
	uint64_t events = 0;
	for (uint64_t i = 0; i < options.threads; i++) {
		threads[i].join();
		events += workers[i]->events;
	}
	double seconds = (now_ns() - start) / 1e9;
	simtorch_checkpoint();
	simtorch_verify();
	printf("done %llu\n", (unsigned long long)events);
	fflush(stdout);
	fprintf(stderr, "tensors: %llu events in %.3f s, %.0f events/s\n", (unsigned long long)events, seconds,
		(double)events / seconds);
	if (options.wait)
		wait_for_stdin();
	return 0;
}
