// Calls the driver from C++ in many ways, without frame pointers, and writes the stacks of its calls.
//
//	chain EXPECTED.JSONL LATE.SO [PASSES]
//
// prints "ready", waits for a byte on stdin, makes its calls, prints "done CALLS" and waits for the end of
// stdin. Each call site allocates its own number of bytes. EXPECTED has a line for each call site: its
// name, its bytes and its functions, innermost first. Every function notes its name (HERE) and the line
// of its next call (NEXT). So the expected stacks come from the source alone, without an unwinder.
extern "C" {
#include "cuda_sim.h"
}

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <csignal>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <mutex>
#include <pthread.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#define FRAME __attribute__((noinline))

namespace {

enum { DEEP = 100, TOO_DEEP = 400 }; // the unwinder's limit is about 145 frames

struct Here {
	const char *function;
	int line;
};

thread_local std::vector<Here> stack;

// Present pushes a function to the expected stack while the function runs.
struct Present {
	explicit Present(const char *function) { stack.push_back({function, 0}); }
	~Present() { stack.pop_back(); }
};

#define HERE(function) Present present_(function)
#define NEXT stack.back().line = __LINE__

std::mutex lock;
std::map<std::string, size_t> sizes;
std::map<std::string, std::string> lines;
std::map<std::string, int> times;
long calls;
bool late_is_new; // late.so was opened in this pass: the recorder may not have its unwind tables yet

void check(CUresult result, const char *what)
{
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "chain: %s: error %d\n", what, result);
		abort();
	}
}

// bytes_of returns the number of bytes of a call site. Its first call stores the expected stack.
size_t bytes_of(const char *name, const Here *own, size_t frames)
{
	std::lock_guard<std::mutex> guard(lock);
	calls += 2;
	times[name]++;
	auto known = sizes.find(name);
	if (known != sizes.end())
		return known->second;
	size_t bytes = 4096 + sizes.size();
	sizes[name] = bytes;
	std::string line = "{\"name\": \"" + std::string(name) + "\", \"bytes\": " + std::to_string(bytes) +
			   ", \"truncated\": " + (frames > TOO_DEEP ? "true" : "false") +
			   ", \"new\": " + (late_is_new && strstr(name, "new library") ? "true" : "false") + ", \"frames\": [";
	for (size_t i = frames; i-- > 0;)
		line += "{\"func\": \"" + std::string(own[i].function) + "\", \"native_line\": " + std::to_string(own[i].line) +
			(i > 0 ? "}, " : "}");
	lines[name] = line + "]";
	return bytes;
}

CUcontext context;

} // namespace

extern "C" FRAME void allocate(const char *name)
{
	HERE("allocate");
	// The frees have the same stack, so the line of this call is not compared.
	size_t bytes = bytes_of(name, stack.data(), stack.size());
	CUdeviceptr memory;
	check(cuMemAlloc_v2(&memory, bytes), "cuMemAlloc_v2");
	check(cuMemFree_v2(memory), "cuMemFree_v2");
}

// Functions with frames of all shapes that compilers make.
extern "C" FRAME int shape_plain(int x)
{
	HERE("shape_plain");
	NEXT; allocate("shapes");
	return x + 1;
}

extern "C" FRAME int shape_big(int x)
{
	HERE("shape_big");
	volatile char big[70000];
	big[x] = 1;
	NEXT; x += shape_plain(x);
	return x + big[x];
}

extern "C" FRAME int shape_variable(int x)
{
	HERE("shape_variable");
	volatile char *variable = static_cast<volatile char *>(alloca(100 + x * 16));
	variable[x] = 1;
	NEXT; x += shape_big(x);
	return x + variable[1];
}

extern "C" FRAME int shape_aligned(int x)
{
	HERE("shape_aligned");
	alignas(128) volatile char aligned[256];
	aligned[x] = 1;
	NEXT; x += shape_variable(x);
	return x + aligned[x & 255];
}

// The frame's address is in a register, and the register is saved in the frame.
extern "C" FRAME int shape_aligned_variable(int x, ...)
{
	HERE("shape_aligned_variable");
	alignas(64) volatile char aligned[128];
	volatile char *variable = static_cast<volatile char *>(alloca(64 + x));
	aligned[x] = variable[x] = 1;
	NEXT; x += shape_aligned(x);
	return x + aligned[1] + variable[1];
}

extern "C" FRAME int shape_many_arguments(int a, int b, int c, int d, int e, int f, int g, int h, double i, long j)
{
	HERE("shape_many_arguments");
	NEXT; int x = shape_aligned_variable(a + b, c, d, e, f, g, h, i, j);
	return a + b + c + d + e + f + g + h + static_cast<int>(i + j) + x;
}

extern "C" FRAME void shapes()
{
	HERE("shapes");
	NEXT; shape_many_arguments(1, 2, 3, 4, 5, 6, 7, 8, 9.0, 10);
	fflush(stdout);
}

// The call is the function's last instruction: its return address belongs to the next function.
extern "C" [[noreturn]] FRAME void throws(const char *name)
{
	HERE("throws");
	NEXT; allocate(name);
	throw std::string(name);
}

extern "C" [[noreturn]] FRAME void last_instruction(const char *name)
{
	stack.push_back({"last_instruction", __LINE__ + 1});
	throws(name);
}

extern "C" FRAME void after_last_instruction()
{
	HERE("after_last_instruction");
	try {
		NEXT; last_instruction("before a throw");
	} catch (const std::string &) {
		stack.pop_back(); // last_instruction cannot pop its own entry
		NEXT; allocate("in a catch");
		try {
			try {
				NEXT; last_instruction("before a throw in a catch");
			} catch (...) {
				stack.pop_back();
				NEXT; allocate("in a catch in a catch");
				throw;
			}
		} catch (...) {
			NEXT; allocate("after throwing again");
		}
	}
	NEXT; allocate("after a catch");
}

// Destructors that run while an exception passes.
struct Resource {
	const char *name;
	FRAME ~Resource();
};

Resource::~Resource()
{
	HERE("Resource::~Resource");
	NEXT; allocate(name);
}

extern "C" FRAME void unwound_at(int depth, const char *name)
{
	HERE("unwound_at");
	Resource resource{name};
	stack.back().line = 0;
	if (depth == 0)
		throw 42;
	unwound_at(depth - 1, depth == 2 ? "destructor 1" : "destructor 0");
}

extern "C" FRAME void destructors()
{
	HERE("destructors");
	try {
		unwound_at(2, "destructor 2");
	} catch (int) {
		NEXT; allocate("after destructors");
	}
	{
		Resource resource{"a destructor without exception"};
		stack.back().line = 0;
	}
	NEXT; allocate("after a destructor");
}

// Recursion.
extern "C" FRAME int recursion(int depth, const char *name)
{
	HERE("recursion");
	if (depth == 1) {
		NEXT; allocate(name);
		return 1;
	}
	NEXT; return 1 + recursion(depth - 1, name);
}

extern "C" FRAME int even(int depth);
extern "C" FRAME int odd(int depth)
{
	HERE("odd");
	volatile int many[50] = {depth};
	NEXT; return 1 + even(many[0] - 1);
}

extern "C" FRAME int even(int depth)
{
	HERE("even");
	if (depth == 0) {
		NEXT; allocate("mutual recursion");
		return 0;
	}
	NEXT; return 1 + odd(depth - 1);
}

// Callbacks from libc.
extern "C" FRAME int comparison(const void *a, const void *b)
{
	HERE("comparison");
	NEXT; allocate("qsort");
	return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}

extern "C" FRAME void sorting()
{
	HERE("sorting");
	int numbers[] = {2, 1};
	NEXT; qsort(numbers, 2, sizeof numbers[0], comparison);
	fflush(stdout);
}

extern "C" FRAME void handler(int)
{
	HERE("handler");
	NEXT; allocate("a signal's handler");
}

extern "C" FRAME void signals()
{
	HERE("signals");
	signal(SIGUSR1, handler);
	NEXT; raise(SIGUSR1);
	fflush(stdout);
}

// Virtual functions, templates, lambdas, std::function.
struct Layer {
	virtual ~Layer() = default;
	virtual int forward(int x) = 0;
};

struct Linear : Layer {
	FRAME int forward(int x) override;
};

int Linear::forward(int x)
{
	HERE("Linear::forward");
	NEXT; allocate("virtual function");
	return x;
}

template <typename T> struct Sequence : Layer {
	T inner;
	FRAME int forward(int x) override
	{
		HERE("Sequence<Linear>::forward");
		Layer *layer = &inner;
		__asm__ volatile("" : "+r"(layer));
		NEXT; x += layer->forward(x);
		return x + 1;
	}
};

extern "C" FRAME void objects()
{
	HERE("objects");
	Sequence<Linear> sequence;
	Layer *layer = &sequence;
	__asm__ volatile("" : "+r"(layer));
	NEXT; layer->forward(1);
	std::function<void()> function = [] { allocate("std::function"); };
	NEXT; function();
	fflush(stdout);
}

// Threads.
extern "C" FRAME void in_thread(const char *name)
{
	HERE("in_thread");
	check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	NEXT; recursion(5, name);
	fflush(stdout);
}

extern "C" FRAME void *posix_thread(void *name)
{
	HERE("posix_thread");
	NEXT; in_thread(static_cast<const char *>(name));
	return nullptr;
}

extern "C" FRAME void threads()
{
	HERE("threads");
	static const char *names[] = {"thread 0", "thread 1", "thread 2", "thread 3"};
	std::vector<std::thread> started;
	for (int i = 0; i < 2; i++)
		started.emplace_back(in_thread, names[i]);
	pthread_t posix[2];
	for (int i = 0; i < 2; i++)
		if (pthread_create(&posix[i], nullptr, posix_thread, const_cast<char *>(names[2 + i])))
			abort();
	for (auto &thread : started)
		thread.join();
	for (auto thread : posix)
		pthread_join(thread, nullptr);
}

// A library that is opened during the recording.
typedef void (*Entry)(size_t, void (*)(void));
Entry late_entry;

// call_late calls late.so, and pushes the names of its functions to the expected stack for them.
extern "C" FRAME void call_late(const char *name, void (*back)(void))
{
	HERE("call_late");
	stack.push_back({"late_entry", 0});
	if (back) {
		late_entry(0, back);
	} else {
		stack.push_back({"late_inner", 0});
		size_t bytes = bytes_of(name, stack.data(), stack.size());
		late_entry(bytes, nullptr);
		stack.pop_back();
	}
	stack.pop_back();
}

extern "C" FRAME void called_by_late()
{
	HERE("called_by_late");
	NEXT; allocate(late_is_new ? "called by a new library" : "called by a late library");
	NEXT; call_late(late_is_new ? "new library again" : "late library again", nullptr);
	fflush(stdout);
}

extern "C" FRAME void late(const char *path)
{
	HERE("late");
	late_is_new = !late_entry;
	if (late_is_new) {
		void *library = dlopen(path, RTLD_NOW);
		if (!library || !(late_entry = reinterpret_cast<Entry>(dlsym(library, "late_entry")))) {
			fprintf(stderr, "chain: %s\n", dlerror());
			abort();
		}
	}
	NEXT; call_late(late_is_new ? "new library" : "late library", nullptr);
	NEXT; call_late(nullptr, called_by_late);
	if (late_is_new)
		usleep(500000);
}

int main(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr, "usage: chain EXPECTED.JSONL LATE.SO [PASSES]\n");
		return 2;
	}
	HERE("main");
	int passes = argc > 3 ? atoi(argv[3]) : 20;
	check(cuInit(0), "cuInit");
	check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	printf("ready %d\n", getpid());
	fflush(stdout);
	char byte;
	if (read(0, &byte, 1) < 0)
		return 1;
	for (int pass = 0; pass < passes; pass++) {
		stack.back().line = 0;
		shapes();
		after_last_instruction();
		destructors();
		recursion(DEEP, "recursion");
		recursion(TOO_DEEP, "too deep");
		even(60);
		sorting();
		signals();
		objects();
		threads();
		late(argv[2]);
	}
	FILE *file = fopen(argv[1], "w");
	if (!file)
		return 1;
	for (const auto &line : lines)
		fprintf(file, "%s, \"times\": %d}\n", line.second.c_str(), times[line.first]);
	fclose(file);
	printf("done %ld\n", calls);
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
}
