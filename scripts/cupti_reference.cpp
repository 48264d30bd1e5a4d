/*
 * Writes the operations of the GPU as CUPTI sees them, for scripts/compare-cupti. A program loads this
 * library, and calls reference_start with the path of a file and reference_stop.
 *
 *     g++ -O2 -shared -fPIC -I/usr/local/cuda/include cupti_reference.cpp -o libreference.so -lcupti
 *
 * scripts/compare-cupti/reference.go describes the lines of the file.
 */
#include <cupti.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <unordered_map>

namespace {

/* A launch of a graph: all its kernels are one operation. */
struct graph_launch {
	uint64_t start = 0, end = 0, sum = 0;
	unsigned kernels = 0, stream = 0;
};

FILE *out;
size_t dropped;
bool is_registered;
std::unordered_map<std::string, int> names;
std::unordered_map<unsigned, graph_launch> graphs;

const CUpti_ActivityKind kinds[] = {
	CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET
};

typedef unsigned long long number;

int number_of(const char *name)
{
	auto known = names.find(name);

	if (known != names.end())
		return known->second;
	int i = (int)names.size();
	names[name] = i;
	fprintf(out, "n %d %s\n", i, name);
	return i;
}

number realtime()
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* Writes CUPTI's time between two Unix times. */
void write_clocks()
{
	uint64_t cupti = 0;
	number before = realtime();

	cuptiGetTimestamp(&cupti);
	fprintf(out, "t %llu %llu %llu\n", before, (number)cupti, realtime());
}

/* Numbers of streams are those of one context. The default stream has the same number in each. */
uint32_t stream_of(uint32_t context, uint32_t stream) { return 1000 * context + stream; }

void write_kernel(const CUpti_ActivityKernel9 *k)
{
	if (!k->graphId) {
		int name = number_of(k->name);

		fprintf(out, "k %llu %llu %u %u %d %d %d %d 0 %u\n", (number)k->start, (number)k->end, k->correlationId,
			stream_of(k->contextId, k->streamId),
			name, k->gridX, k->gridY, k->gridZ, k->channelID);
		return;
	}
	graph_launch &g = graphs[k->correlationId];
	if (!g.kernels || k->start < g.start)
		g.start = k->start;
	if (k->end > g.end)
		g.end = k->end;
	g.kernels++;
	g.stream = stream_of(k->contextId, k->streamId);
	g.sum += k->end - k->start;
}

void write_record(CUpti_Activity *record)
{
	switch (record->kind) {
	case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
		write_kernel((CUpti_ActivityKernel9 *)record);
		break;
	case CUPTI_ACTIVITY_KIND_MEMCPY: {
		auto c = (CUpti_ActivityMemcpy5 *)record;

		fprintf(out, "c %llu %llu %u %u %d %u %u %llu\n", (number)c->start, (number)c->end, c->correlationId,
			stream_of(c->contextId, c->streamId),
			c->copyKind, c->graphId, c->channelID, (number)c->bytes);
		break;
	}
	case CUPTI_ACTIVITY_KIND_MEMSET: {
		auto s = (CUpti_ActivityMemset4 *)record;

		fprintf(out, "s %llu %llu %u %u %u %u\n", (number)s->start, (number)s->end, s->correlationId,
			stream_of(s->contextId, s->streamId),
			s->graphId, s->channelID);
		break;
	}
	default:
		break;
	}
}

void CUPTIAPI give_buffer(uint8_t **buffer, size_t *bytes, size_t *max_records)
{
	*bytes = 8 << 20;
	*buffer = (uint8_t *)aligned_alloc(8, *bytes);
	*max_records = 0;
}

void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t, size_t valid_bytes)
{
	CUpti_Activity *record = nullptr;
	size_t lost = 0;

	while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS)
		write_record(record);
	cuptiActivityGetNumDroppedRecords(context, stream, &lost);
	dropped += lost;
	free(buffer);
}

} // namespace

extern "C" int reference_start(const char *path)
{
	out = fopen(path, "w");
	if (!out)
		return 1;
	names.clear();
	graphs.clear();
	if (!is_registered)
		cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
	is_registered = true;
	for (CUpti_ActivityKind kind : kinds)
		if (cuptiActivityEnable(kind) != CUPTI_SUCCESS)
			return 1;
	write_clocks();
	return 0;
}

/* The program must have waited for all its operations. */
extern "C" void reference_stop()
{
	write_clocks();
	cuptiActivityFlushAll(1);
	for (CUpti_ActivityKind kind : kinds)
		cuptiActivityDisable(kind);
	cuptiActivityFlushAll(1);
	for (const auto &launch : graphs) {
		const graph_launch &g = launch.second;

		fprintf(out, "g %llu %llu %u %u %u %llu\n", (number)g.start, (number)g.end, launch.first, g.stream, g.kernels,
			(number)g.sum);
	}
	fprintf(out, "d %zu\n", dropped);
	fclose(out);
}
