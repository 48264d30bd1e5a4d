/* libtorch_cpu.so: an autograd engine with one thread, whose nodes only allocate gradients and launch a kernel. */
#include "engine.h"
#include "driver.h"
#include "simtorch.h"

#include <pthread.h>
#include <stdexcept>
#include <string>
#include <thread>

#define FRAME __attribute__((noinline))

namespace torch::autograd {

/* True on the thread of the engine. */
static thread_local bool is_worker = false;

static variable_list run_nodes(const edge_list &roots)
{
	variable_list gradients;
	for (auto &root : roots) {
		variable_list made = root.function->apply({});
		gradients.insert(gradients.end(), made.begin(), made.end());
	}
	return gradients;
}

FRAME variable_list Engine::execute(const edge_list &roots, const variable_list &, bool, bool, bool, const edge_list &)
{
	if (is_worker)
		return run_nodes(roots);
	GraphTask task = {&roots, true, {}, nullptr};
	std::unique_lock<std::mutex> lock(mutex);
	inside++;
	variable_list gradients = wait_for(task, lock);
	/* With several threads, none leaves before the last task ends. */
	changed.wait(lock, [&] { return queue.empty() && !is_busy; });
	inside--;
	if (task.error)
		std::rethrow_exception(task.error);
	return gradients;
}

variable_list Engine::run_alone(const edge_list &roots)
{
	GraphTask task = {&roots, false, {}, nullptr};
	std::unique_lock<std::mutex> lock(mutex);
	return wait_for(task, lock);
}

void Engine::set_together(int threads)
{
	std::lock_guard<std::mutex> lock(mutex);
	together = threads;
}

variable_list Engine::wait_for(GraphTask &task, std::unique_lock<std::mutex> &lock)
{
	start();
	queue.push_back(&task);
	changed.notify_all();
	changed.wait(lock, [&] { return task.done; });
	return task.gradients;
}

void Engine::start()
{
	if (!is_started)
		std::thread([this] { thread_main(); }).detach();
	is_started = true;
}

/* PyTorch, too, names the thread before it calls CUDA. */
FRAME void Engine::thread_main()
{
	pthread_setname_np(pthread_self(), "pt_autograd_0");
	is_worker = true;
	std::unique_lock<std::mutex> lock(mutex);
	for (;;) {
		changed.wait(lock, [&] { return !queue.empty() && (!queue.front()->needs_caller || inside >= together); });
		GraphTask *task = queue.front();
		queue.pop_front();
		is_busy = true;
		lock.unlock();
		try {
			task->gradients = run_nodes(*task->roots);
		} catch (...) {
			task->error = std::current_exception();
		}
		lock.lock();
		is_busy = false;
		task->done = true;
		changed.notify_all();
	}
}

static CUfunction kernel()
{
	static const char image[] = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry accumulate_grad()\n{\n\tret;\n}\n";
	static const CUfunction function = [] {
		CUmodule module;
		CUfunction made;
		CU(cuModuleLoadData, &module, image);
		CU(cuModuleGetFunction, &made, module, "accumulate_grad");
		return made;
	}();
	return function;
}

/* The node that gives a parameter its gradient. */
struct AccumulateGrad : Node {
	size_t bytes;

	explicit AccumulateGrad(size_t bytes) : bytes(bytes) {}
	FRAME variable_list apply(variable_list &&) override
	{
		void *ptr = simtorch_alloc(bytes, nullptr);
		if (!ptr)
			throw std::runtime_error("CUDA out of memory");
		CU(cuLaunchKernel, kernel(), 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr);
		return {{ptr}};
	}
};

} // namespace torch::autograd

using namespace torch::autograd;

static Engine &engine()
{
	static Engine &the = *new Engine; /* never deleted: its thread waits until the process ends */
	return the;
}

/* torch.utils.checkpoint: a node whose apply() calls the engine. */
struct CheckpointFunction : Node {
	edge_list roots;

	explicit CheckpointFunction(const edge_list &roots) : roots(roots) {}
	FRAME variable_list apply(variable_list &&) override
	{
		return engine().execute(roots, {}, false, false, true, {});
	}
};

static edge_list make_roots(size_t bytes, int gradients, int checkpointed)
{
	edge_list roots, inner;
	for (int i = 0; i < gradients; i++)
		(i < checkpointed ? inner : roots).push_back({std::make_shared<AccumulateGrad>(bytes), 0});
	if (!inner.empty())
		roots.insert(roots.begin(), {std::make_shared<CheckpointFunction>(inner), 0});
	return roots;
}

static int copy_out(const variable_list &gradients, void **into)
{
	for (size_t i = 0; i < gradients.size(); i++)
		into[i] = gradients[i].ptr;
	return (int)gradients.size();
}

extern "C" {

/* Makes gradients of so many bytes, and stores them in into. The first of them are made inside of a checkpoint.
 * Returns their number, or 0 if memory is out: an exception has left the engine then. */
EXPORT int simtorch_backward(size_t bytes, int gradients, int checkpointed, void **into)
{
	edge_list roots = make_roots(bytes, gradients, checkpointed);
	try {
		return copy_out(engine().execute(roots, {}, false, false, true, {}), into);
	} catch (const std::runtime_error &) {
		return 0;
	}
}

/* Makes gradients on the thread of the engine while no thread is inside of execute. */
EXPORT int simtorch_backward_alone(size_t bytes, int gradients, void **into)
{
	return copy_out(engine().run_alone(make_roots(bytes, gradients, 0)), into);
}

/* From now on, the engine's thread works only while so many threads are inside of execute. */
EXPORT void simtorch_backward_together(int threads)
{
	engine().set_together(threads);
}

}
