/* The allocator of all devices, which finds the device and the block of a pointer; and the C
 * interface of simtorch.h. */
#include "allocator.h"
#include "simtorch.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>

namespace c10::cuda::CUDACachingAllocator {

/* The base class of PyTorch's allocators. Recorders read the name of an allocator's class from its
 * type information. */
class CUDAAllocator {
public:
	virtual ~CUDAAllocator() = default;
};

} // namespace c10::cuda::CUDACachingAllocator

namespace c10::cuda::CUDACachingAllocator::Native {

class NativeCachingAllocator : public CUDAAllocator {
	/* Twice as much as recorders search: the vector that they find is heads. */
	std::byte area[2 * NATIVE_BYTES] = {};
	std::mutex mutex;
	std::unordered_map<void *, std::pair<DeviceCachingAllocator *, Block *>> allocated_blocks;

public:
	std::vector<std::unique_ptr<DeviceCachingAllocator>> device_allocator;

	NativeCachingAllocator();
	void init();
	void malloc(void **ptr, DeviceIndex device, size_t size, CUstream stream);
	void free(void *ptr);
	void recordStream(void *ptr, CUstream stream);

private:
	/* The device allocators as recorders see them. */
	std::vector<const void *> &heads() { return member<std::vector<const void *>>(this, layout.native.device_allocator); }
	std::pair<DeviceCachingAllocator *, Block *> get_allocated_block(void *ptr, bool remove);
};

} // namespace c10::cuda::CUDACachingAllocator::Native

/* Allocators of other classes, for SIMTORCH_BROKEN. They differ from PyTorch's in nothing else. */
namespace c10::cuda::CUDACachingAllocator {
using Native::NativeCachingAllocator;
namespace Native {
struct OtherCachingAllocator : CUDAAllocator {
	NativeCachingAllocator native;
};
} // namespace Native
namespace CudaMallocAsync {
struct CudaMallocAsyncAllocator : CUDAAllocator {
	NativeCachingAllocator native;
};
} // namespace CudaMallocAsync
} // namespace c10::cuda::CUDACachingAllocator
namespace torch::cuda::CUDAPluggableAllocator {
struct CUDAPluggableAllocator : c10::cuda::CUDACachingAllocator::CUDAAllocator {
	c10::cuda::CUDACachingAllocator::NativeCachingAllocator native;
};
} // namespace torch::cuda::CUDAPluggableAllocator

namespace c10::cuda::CUDACachingAllocator::Native {

struct Chosen {
	CUDAAllocator *allocator;
	NativeCachingAllocator *native; /* the same, or a part of it */
};

template <typename Other> static Chosen choose()
{
	Other *other = new Other;
	return {other, &other->native};
}

static Chosen choose_allocator()
{
	switch (layout.broken) {
	case Broken::CLASS: return choose<OtherCachingAllocator>();
	case Broken::ASYNC: return choose<CudaMallocAsync::CudaMallocAsyncAllocator>();
	case Broken::PLUGGABLE: return choose<torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator>();
	default: break;
	}
	NativeCachingAllocator *native = new NativeCachingAllocator;
	return {native, native};
}

/* Never destroyed: programs free tensors until the end of the process. */
static const Chosen chosen = choose_allocator();
static NativeCachingAllocator &allocator = *chosen.native;

} // namespace c10::cuda::CUDACachingAllocator::Native

/* The allocator in use. Recorders find it by this name. */
namespace c10::cuda::CUDACachingAllocator {
EXPORT std::atomic<CUDAAllocator *> allocator = Native::chosen.allocator;
}

namespace c10::cuda::CUDACachingAllocator::Native {

NativeCachingAllocator::NativeCachingAllocator()
{
	write_unknown_words(this, layout.native.unknown);
	new (&heads()) std::vector<const void *>;
}

void NativeCachingAllocator::init()
{
	int devices = driver_start();
	std::lock_guard<std::mutex> lock(mutex);
	for (int i = (int)device_allocator.size(); i < devices; i++) {
		device_allocator.push_back(std::make_unique<DeviceCachingAllocator>((DeviceIndex)i));
		heads().push_back(device_allocator.back()->head());
	}
}

FRAME void NativeCachingAllocator::malloc(void **ptr, DeviceIndex device, size_t size, CUstream stream)
{
	DeviceCachingAllocator *owner = device_allocator.at((size_t)device).get();
	Block *block = owner->malloc(size, stream);
	std::lock_guard<std::mutex> lock(mutex);
	*ptr = block->ptr();
	allocated_blocks[block->ptr()] = {owner, block};
}

std::pair<DeviceCachingAllocator *, Block *> NativeCachingAllocator::get_allocated_block(void *ptr, bool remove)
{
	std::lock_guard<std::mutex> lock(mutex);
	auto it = allocated_blocks.find(ptr);
	if (it == allocated_blocks.end())
		throw std::invalid_argument("invalid device pointer");
	auto found = it->second;
	if (remove)
		allocated_blocks.erase(it);
	return found;
}

FRAME void NativeCachingAllocator::free(void *ptr)
{
	auto [owner, block] = get_allocated_block(ptr, true);
	owner->free(block);
}

void NativeCachingAllocator::recordStream(void *ptr, CUstream stream)
{
	auto [owner, block] = get_allocated_block(ptr, false);
	owner->recordStream(block, stream);
}

/* The deleter of PyTorch's tensors. */
FRAME static void local_raw_delete(void *ptr)
{
	allocator.free(ptr);
}

namespace {

thread_local DeviceIndex current_device;

/* A stream that is or was captured. It is never destroyed, because blocks of its pool refer to
 * it. */
struct Graph {
	DeviceCachingAllocator *owner;
	CUstream stream;
	CUgraph graph;
};

std::mutex graphs_lock;
std::map<uint64_t, Graph> graphs;
std::map<uint64_t, DeviceCachingAllocator *> pools;

DeviceCachingAllocator &current_allocator()
{
	return *allocator.device_allocator.at((size_t)current_device);
}

/* Runs work. Prints an exception and exits the process, because C callers cannot handle
 * exceptions. */
template <typename Work> auto exit_on_error(Work work)
{
	try {
		return work();
	} catch (const std::exception &e) {
		fprintf(stderr, "simtorch: error: %s\n", e.what());
		exit(1);
	}
}

} // namespace
} // namespace c10::cuda::CUDACachingAllocator::Native

using namespace c10::cuda::CUDACachingAllocator::Native;
using c10::MempoolId_t;

EXPORT int simtorch_init(void)
{
	return exit_on_error([] {
		allocator.init();
		return (int)allocator.device_allocator.size();
	});
}

EXPORT void simtorch_set_device(int device)
{
	current_device = (c10::DeviceIndex)device;
}

EXPORT size_t simtorch_memory(void)
{
	return exit_on_error([] { return driver_memory(current_device); });
}

EXPORT void simtorch_set_memory_fraction(double fraction)
{
	exit_on_error([=] { current_allocator().setMemoryFraction(fraction); });
}

EXPORT void *simtorch_stream(void)
{
	return exit_on_error([] {
		CUstream stream;
		driver_use(current_device);
		CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
		return stream;
	});
}

EXPORT void simtorch_work(void *ptr, size_t bytes, void *stream)
{
	exit_on_error([=] {
		driver_use(current_device);
		CU(cuMemsetD8Async, (CUdeviceptr)ptr, 0, bytes, (CUstream)stream);
	});
}

EXPORT void *simtorch_alloc(size_t bytes, void *stream)
{
	return exit_on_error([=]() -> void * {
		void *ptr = nullptr;
		try {
			allocator.malloc(&ptr, current_device, bytes, (CUstream)stream);
		} catch (const OutOfMemoryError &) {
		}
		return ptr;
	});
}

EXPORT void simtorch_free(void *ptr)
{
	exit_on_error([=] { local_raw_delete(ptr); });
}

EXPORT void simtorch_record_stream(void *ptr, void *stream)
{
	exit_on_error([=] { allocator.recordStream(ptr, (CUstream)stream); });
}

EXPORT void simtorch_empty_cache(void)
{
	exit_on_error([] {
		for (auto &device : allocator.device_allocator)
			device->emptyCache({0, 0});
	});
}

EXPORT void simtorch_snapshot(void)
{
	exit_on_error([] {
		for (auto &device : allocator.device_allocator)
			device->snapshot();
	});
}

/* ---- private pools, with the call sequences of torch.cuda.MemPool and CUDAGraph ---- */

EXPORT uint64_t simtorch_pool_create(void)
{
	return exit_on_error([] {
		static std::atomic<uint64_t> last;
		uint64_t id = ++last;
		current_allocator().createOrIncrefPool({0, id});
		std::lock_guard<std::mutex> lock(graphs_lock);
		pools[id] = &current_allocator();
		return id;
	});
}

static DeviceCachingAllocator *owner_of(uint64_t pool)
{
	std::lock_guard<std::mutex> lock(graphs_lock);
	return pools.at(pool);
}

EXPORT void simtorch_pool_begin(uint64_t pool)
{
	exit_on_error([=] {
		auto filter = [thread = pthread_self()](CUstream) { return pthread_equal(thread, pthread_self()) != 0; };
		owner_of(pool)->beginAllocateToPool({0, pool}, filter);
	});
}

EXPORT void simtorch_pool_end(uint64_t pool)
{
	exit_on_error([=] {
		owner_of(pool)->endAllocateToPool({0, pool});
		owner_of(pool)->releasePool({0, pool});
	});
}

EXPORT void simtorch_pool_destroy(uint64_t pool)
{
	exit_on_error([=] {
		DeviceCachingAllocator *owner = owner_of(pool);
		owner->releasePool({0, pool});
		owner->emptyCache({0, pool});
	});
}

EXPORT uint64_t simtorch_graph_begin(void **stream)
{
	return exit_on_error([=] {
		static std::atomic<uint64_t> last;
		uint64_t id = ++last;
		CUstream captured = (CUstream)simtorch_stream();
		current_allocator().beginAllocateToPool({id, 0}, [captured](CUstream s) { return s == captured; });
		CU(cuStreamBeginCapture_v2, captured, CU_STREAM_CAPTURE_MODE_RELAXED);
		std::lock_guard<std::mutex> lock(graphs_lock);
		graphs[id] = {&current_allocator(), captured, nullptr};
		*stream = captured;
		return id;
	});
}

EXPORT void simtorch_graph_end(uint64_t id)
{
	exit_on_error([=] {
		std::lock_guard<std::mutex> lock(graphs_lock);
		Graph &graph = graphs.at(id);
		driver_use(graph.owner->device());
		CU(cuStreamEndCapture, graph.stream, &graph.graph);
		graph.owner->endAllocateToPool({id, 0});
	});
}

EXPORT void simtorch_graph_destroy(uint64_t id)
{
	exit_on_error([=] {
		std::lock_guard<std::mutex> lock(graphs_lock);
		Graph graph = graphs.at(id);
		graphs.erase(id);
		if (graph.graph)
			CU(cuGraphDestroy, graph.graph);
		graph.owner->releasePool({id, 0});
	});
}

/* Reports CPU memory, as PyTorch's CPU allocator does while a profiler records memory. */
static void report_host(void *ptr, int64_t bytes, size_t total)
{
	uint64_t start_ns = ledger::now();
	c10::reportMemoryUsageToProfiler(ptr, bytes, total, 0, {c10::DeviceType::CPU, 0});
	ledger::write_usage({.start_ns = start_ns, .end_ns = ledger::now(), .ptr = (uint64_t)ptr, .bytes = bytes,
			     .allocated_bytes = total, .reserved_bytes = 0, .device = -1});
}

EXPORT void simtorch_host_tensor(size_t bytes)
{
	void *ptr = malloc(bytes);
	report_host(ptr, (int64_t)bytes, bytes);
	report_host(ptr, -(int64_t)bytes, 0);
	free(ptr);
}

/* ---- functions for tests ---- */

EXPORT void simtorch_checkpoint(void)
{
	for (auto &device : allocator.device_allocator)
		device->checkpoint();
	ledger::flush();
}

EXPORT int64_t simtorch_stat(const char *name)
{
	return current_allocator().stat(name);
}

EXPORT uint64_t simtorch_events(void)
{
	return ledger::events;
}

EXPORT void simtorch_verify(void)
{
	exit_on_error([] {
		for (auto &device : allocator.device_allocator)
			device->verify();
	});
}
